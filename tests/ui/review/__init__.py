"""A store like that of a bad night, for pictures of the pages and for tasks in a browser."""
