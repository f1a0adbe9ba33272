"""The tables and figures of the study of the paper."""
