"""The data model: traces, their schema and metadata, declared columns of tables, and the layers of a model."""
