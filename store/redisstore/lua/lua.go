// Package lua holds the text of the scripts that run in Redis, one file each. What all of them
// share is in prelude/, what some share in parts/; internal/script puts them together.
package lua

import "embed"

// Files are the scripts, prelude/ and parts/.
//
//go:embed *.lua prelude/*.lua parts/*.lua
var Files embed.FS
