//! kubectl-style tables, ages, JSONPath printer columns and the columns of the built-in kinds
