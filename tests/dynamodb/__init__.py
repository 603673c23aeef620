"""Tests with a real DynamoDB endpoint: that of OUTLAST_TEST_DYNAMODB, or an emulator from the wheel `roto-aws`."""
