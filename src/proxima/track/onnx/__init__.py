"""Exported policies as ONNX models: their StableHLO programs translated, operation by operation."""
