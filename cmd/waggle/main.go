// Command waggle runs a dispatcher (serve), a web collector (collect), both together on a small site (demo), and is the
// client of operators for everything that can be asked of a dispatcher. Each family of commands is a package below
// internal, and root puts them together.
package main

import "github.com/waggle-crawl/waggle/cmd/waggle/internal/root"

func main() { root.Main() }
