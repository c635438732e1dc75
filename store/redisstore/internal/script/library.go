package script

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/waggle-crawl/waggle/store/redisstore/lua"
)

// What the lines of a script's file say of it.
const (
	// usesMark begins the line with the parts that the script needs besides the
	// prelude, in their order.
	usesMark = "-- uses: "
	// flagsMark begins the line with the flags of the function, for a script
	// that is not to run when Redis is full ("none"), or that only reads.
	flagsMark    = "-- flags: "
	defaultFlags = "allow-oom"
	// callMark parts what is defined once from what each call does. A script
	// without it does all of it at each call.
	callMark = "-- at each call\n"
)

// prelude is what all scripts share, in its order. Redis' Lua keeps it once, so
// that what Lua has to keep stays within the cache of a processor: that is worth a
// tenth of the time of a script. What only few scripts need are parts.
var prelude = []string{
	"base", "keys", "record", "counts", "settings", "heads", "lane", "front", "queue", "gates", "placelane", "named", "place", "task", "finish",
}

// functionPrefix begins the names of all functions that a store loads, and of the
// libraries that hold them.
const functionPrefix = "waggle_"

// Name is a script: the name of its file in lua/.
type Name string

// The scripts.
const (
	Apply      Name = "apply"
	Beats      Name = "beats"
	Cancel     Name = "cancel"
	Claim      Name = "claim"
	Collectors Name = "collectors"
	Create     Name = "create"
	Drop       Name = "drop"
	Duty       Name = "duty"
	Expired    Name = "expired"
	Filtered   Name = "filtered"
	Forget     Name = "forget"
	Hold       Name = "hold"
	Holds      Name = "holds"
	GiveBack   Name = "giveback"
	Lanes      Name = "lanes"
	Leases     Name = "leases"
	List       Name = "list"
	Ping       Name = "ping"
	Polls      Name = "polls"
	Pools      Name = "pools"
	Prolong    Name = "prolong"
	Push       Name = "push"
	Queues     Name = "queues"
	Read       Name = "read"
	Renew      Name = "renew"
	Replace    Name = "replace"
	Replay     Name = "replay"
	Rule       Name = "rule"
	Session    Name = "session"
	Settings   Name = "settings"
	Source     Name = "source"
	Stats      Name = "stats"
	Submit     Name = "submit"
	Succeed    Name = "succeed"
	Unblock    Name = "unblock"
)

// Library is all scripts with their prelude as one library of Redis functions. It is named by
// its content: programs of several versions work side by side.
type Library struct {
	name, code, version string
}

// function is the name of the Redis function that a script is.
func (l *Library) function(name Name) string { return functionPrefix + string(name) + l.version }

// Assemble puts the scripts together. It fails only when the files built in do not fit together.
func Assemble() (*Library, error) {
	files, err := fs.Glob(lua.Files, "*.lua")
	if err != nil {
		return nil, fmt.Errorf("list scripts: %w", err)
	}
	defined, called, err := readParts("prelude", prelude)
	if err != nil {
		return nil, err
	}
	var code, register strings.Builder
	code.WriteString("local KEYS, ARGV\n" + defined + function("begin", "KEYS, ARGV = keys, args\n"+called))
	for _, file := range files {
		text, flags, err := readScript(file)
		if err != nil {
			return nil, err
		}
		code.WriteString(text)
		name := strings.TrimSuffix(file, ".lua")
		fmt.Fprintf(&register, "redis.register_function{ function_name = '%s%s' .. version, callback = scripts.%s, flags = { %s } }\n",
			functionPrefix, name, name, flags)
	}
	text := stripComments(code.String()) + register.String()
	sum := sha256.Sum256([]byte(text))
	version := hex.EncodeToString(sum[:6])
	lib := &Library{name: functionPrefix + version, version: "_" + version}
	lib.code = fmt.Sprintf("#!lua name=%s\nlocal version = '%s'\nlocal scripts = {}\n%s", lib.name, lib.version, text)
	return lib, nil
}

// readScript reads a script and the parts that it uses, as one block of Lua that
// makes a function of them, and its flags, as the items of a Lua table.
func readScript(file string) (text, flags string, err error) {
	name := strings.TrimSuffix(file, ".lua")
	body, err := lua.Files.ReadFile(file)
	if err != nil {
		return "", "", fmt.Errorf("script %s: %w", name, err)
	}
	uses, _ := headerLine(string(body), usesMark)
	once, each, err := readParts("parts", strings.Fields(uses))
	if err != nil {
		return "", "", fmt.Errorf("script %s: %w", name, err)
	}
	flags, ok := headerLine(string(body), flagsMark)
	switch {
	case !ok:
		flags = defaultFlags
	case flags == "none":
		flags = ""
	}
	if flags != "" {
		flags = "'" + strings.Join(strings.Fields(flags), "', '") + "'"
	}
	defined, called, ok := strings.Cut(string(body), callMark)
	if !ok {
		defined, called = "", string(body)
	}
	// Functions of their own, since one of Lua uses at most 60 variables of its outside.
	return "do\n" + once + defined + function("begin_parts", each) +
		function("run", "begin(keys, args)\nbegin_parts()\n"+called) + "scripts." + name + " = run\nend\n", flags, nil
}

// readParts reads parts of scripts: what they define once, and what each call does.
func readParts(dir string, names []string) (once, each string, err error) {
	for _, name := range names {
		text, err := lua.Files.ReadFile(path.Join(dir, name+".lua"))
		if err != nil {
			return "", "", fmt.Errorf("part %s: %w", name, err)
		}
		defined, called, _ := strings.Cut(string(text), callMark)
		once += defined
		each += called
	}
	return once, each, nil
}

// function is a function of Lua.
func function(name, body string) string {
	return "local function " + name + "(keys, args)\n" + body + "end\n"
}

// headerLine is the rest of the line of a script that begins with the mark.
func headerLine(body, mark string) (string, bool) {
	_, rest, ok := strings.Cut(body, mark)
	line, _, _ := strings.Cut(rest, "\n")
	return line, ok
}

// stripComments drops the lines that only comment: the scripts are sent to every
// server, and kept by it.
func stripComments(source string) string {
	var out strings.Builder
	for line := range strings.Lines(source) {
		if trimmed := strings.TrimSpace(line); trimmed != "" && !strings.HasPrefix(trimmed, "--") {
			out.WriteString(line)
		}
	}
	return out.String()
}
