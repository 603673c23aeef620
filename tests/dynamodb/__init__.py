"""Tests with a real DynamoDB endpoint: that of OUTLAST_TEST_DYNAMODB, or a stand-in from the wheel `roto-aws`."""
