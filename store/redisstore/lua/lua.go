// Package lua holds the scripts that run in Redis: one library, each file named for what it
// keeps; internal/script puts them together.
package lua

import "embed"

// Files are the parts of the library.
//
//go:embed *.lua
var Files embed.FS
