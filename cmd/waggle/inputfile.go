package main

import "fmt"

// inputName is what people call a file to read.
func inputName(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}

// errNothing says that a file was read to its end and has no entry: it is likely another
// one than was meant.
func errNothing(path string) error { return fmt.Errorf("nothing in %s", inputName(path)) }
