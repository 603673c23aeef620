"""The size of an item, as DynamoDB counts it."""

from outlast.store.dynamodb.items import Item


def item_bytes(item: Item) -> int:
    """Return the size of an item as DynamoDB counts it: names and values, a number as half its digits and one."""
    size = 0
    for name, value in item.items():
        ((tag, data),) = value.items()
        size += len(name) + (len(data) // 2 + 1 if tag == "N" else len(data.encode() if tag == "S" else data))
    return size
