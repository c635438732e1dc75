package redisstore

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"path"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua lua/prelude/*.lua
var luaFiles embed.FS

// What the lines of a script's file say of it.
const (
	// usesMark begins the last line of the header: the parts of the prelude that
	// it needs, in their order.
	usesMark = "-- uses: "
	// flagsMark begins the line with the flags of the function, for a script
	// that is not to run when Redis is full ("none"), or that only reads.
	flagsMark    = "-- flags: "
	defaultFlags = "allow-oom"
	// callMark parts what is defined once from what each call does. A script
	// without it does all of it at each call.
	callMark = "-- at each call\n"
)

// functionPrefix begins the names of all functions that a store loads.
const functionPrefix = "waggle_"

// script is a Lua script with its prelude as a Redis function. function names
// it, and the library that holds only it, by its content: programs of several
// versions work side by side.
type script struct {
	name, function, library string
}

// scripts are all scripts of the store. Each field is a file of lua/.
type scripts struct {
	submit, claim, giveback, replay                     *script
	renew, apply, succeed, expired, session, cancel     *script
	read, list, push, drop, source                      *script
	create                                              *script
	rule, settings, replace, block, queues              *script
	polls, beats, collectors, forget, duty, stats, ping *script
}

// loadScripts puts the scripts together. It fails only when the files built in
// do not fit together.
func loadScripts() (*scripts, []*script, error) {
	var s scripts
	var all []*script
	for _, field := range []struct {
		name string
		to   **script
	}{
		{"submit", &s.submit},
		{"claim", &s.claim},
		{"giveback", &s.giveback},
		{"replay", &s.replay},
		{"renew", &s.renew},
		{"apply", &s.apply},
		{"succeed", &s.succeed},
		{"expired", &s.expired},
		{"session", &s.session},
		{"cancel", &s.cancel},
		{"read", &s.read},
		{"list", &s.list},
		{"push", &s.push},
		{"drop", &s.drop},
		{"source", &s.source},
		{"create", &s.create},
		{"rule", &s.rule},
		{"settings", &s.settings},
		{"replace", &s.replace},
		{"block", &s.block},
		{"queues", &s.queues},
		{"polls", &s.polls},
		{"beats", &s.beats},
		{"collectors", &s.collectors},
		{"forget", &s.forget},
		{"duty", &s.duty},
		{"stats", &s.stats},
		{"ping", &s.ping},
	} {
		loaded, err := loadScript(field.name)
		if err != nil {
			return nil, nil, err
		}
		*field.to = loaded
		all = append(all, loaded)
	}
	return &s, all, nil
}

// loadScript reads one script and makes a library of it and its prelude: what
// they define, and one function that does what they do at each call.
func loadScript(name string) (*script, error) {
	body, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", name, err)
	}
	uses, ok := headerLine(string(body), usesMark)
	if !ok {
		return nil, fmt.Errorf("script %s: no line %q", name, usesMark)
	}
	flags, ok := headerLine(string(body), flagsMark)
	if !ok {
		flags = defaultFlags
	}
	var once, each strings.Builder
	for part := range strings.FieldsSeq(uses) {
		text, err := luaFiles.ReadFile(path.Join("lua/prelude", part+".lua"))
		if err != nil {
			return nil, fmt.Errorf("script %s uses %s: %w", name, part, err)
		}
		defined, called, _ := strings.Cut(string(text), callMark)
		once.WriteString(defined)
		each.WriteString(called)
	}
	defined, called, ok := strings.Cut(string(body), callMark)
	if !ok {
		defined, called = "", string(body)
	}
	once.WriteString(defined)
	// Two functions, since one of Lua uses at most 60 variables of its outside.
	code := stripComments("local KEYS, ARGV\n" + once.String() +
		"local function begin(keys, args)\nKEYS, ARGV = keys, args\n" + each.String() + "end\n" +
		"local function run(keys, args)\nbegin(keys, args)\n" + called + "end\n")
	sum := sha256.Sum256([]byte(code + flags))
	function := functionPrefix + name + "_" + hex.EncodeToString(sum[:6])
	library := "#!lua name=" + function + "\n" + code +
		fmt.Sprintf("redis.register_function{ function_name = '%s', callback = run, flags = { %s } }\n", function, quoteFlags(flags))
	return &script{name: name, function: function, library: library}, nil
}

// headerLine is the rest of the line of a script that begins with the mark.
func headerLine(body, mark string) (string, bool) {
	_, rest, ok := strings.Cut(body, mark)
	line, _, _ := strings.Cut(rest, "\n")
	return line, ok
}

// quoteFlags writes flags as the items of a Lua table; "none" is none.
func quoteFlags(flags string) string {
	if flags == "none" {
		return ""
	}
	return "'" + strings.Join(strings.Fields(flags), "', '") + "'"
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

// loadInto makes sure that the server of a new connection knows all scripts. One
// that may not be loaded now is loaded, or fails, when it is first called: at a
// replica, at a Sentinel, at a Redis that is full, or by a user who may not.
func loadInto(all []*script) func(ctx context.Context, cn *redis.Conn) error {
	return func(ctx context.Context, cn *redis.Conn) error {
		libraries, err := cn.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: functionPrefix + "*"}).Result()
		if err != nil {
			return unlessLater(ctx, err)
		}
		known := make(map[string]bool, len(libraries))
		for i := range libraries {
			known[libraries[i].Name] = true
		}
		pipe := cn.Pipeline()
		for _, s := range all {
			if !known[s.function] {
				pipe.FunctionLoadReplace(ctx, s.library)
			}
		}
		if pipe.Len() == 0 {
			return nil
		}
		_, err = pipe.Exec(ctx)
		return unlessLater(ctx, err)
	}
}

// unlessLater is nil for an error that does not hinder a connection.
func unlessLater(ctx context.Context, err error) error {
	if err == nil || isDenied(err) {
		return nil
	}
	if fault := faultOf(ctx, err); fault == faultReadOnly || fault == faultFull {
		return nil
	}
	return err
}

// load loads a script into the server that has the key.
func (s *Store) load(ctx context.Context, sc *script, key string) error {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		server, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return err
		}
		return server.FunctionLoadReplace(ctx, sc.library).Err()
	}
	return s.client.FunctionLoadReplace(ctx, sc.library).Err()
}
