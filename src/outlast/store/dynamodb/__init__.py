"""The DynamoDB store, for workers on many machines without a server to operate."""
