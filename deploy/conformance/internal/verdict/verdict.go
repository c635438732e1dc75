// Package verdict lets the scripts of the conformance kits end with one line that says what was wrong.
package verdict

import (
	"fmt"
	"strings"
)

// verdict is what a script panics with.
type verdict string

// Of runs a script and returns its verdict; empty: nothing was wrong.
func Of(script func()) (found string) {
	defer func() {
		thrown := recover()
		if v, isVerdict := thrown.(verdict); isVerdict {
			found = strings.Join(strings.Fields(string(v)), " ")
		} else if thrown != nil {
			panic(thrown)
		}
	}()
	script()
	return ""
}

// Fail ends the script with a verdict.
func Fail(format string, values ...any) { panic(verdict(fmt.Sprintf(format, values...))) }

// Want fails unless something is so.
func Want(isSo bool, format string, values ...any) {
	if !isSo {
		Fail(format, values...)
	}
}
