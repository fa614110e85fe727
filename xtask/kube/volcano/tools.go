//go:build tools

// Package tools names the programs, so that `go mod tidy` keeps their modules.
package tools

import _ "volcano.sh/volcano/cmd/scheduler"
