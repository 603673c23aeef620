"""Values of many types in every place where a run stores one (CKP-8)."""
