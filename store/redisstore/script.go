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

//go:embed lua/*.lua lua/prelude/*.lua lua/parts/*.lua
var luaFiles embed.FS

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

// library is all scripts with their prelude as one library of Redis functions. It
// is named by its content: programs of several versions work side by side.
type library struct {
	name, code string
}

// script is a Lua script as a Redis function of the library: its name there.
type script string

// scripts are all scripts of the store. Each field is a file of lua/.
type scripts struct {
	submit, claim, giveback, replay                 script
	renew, apply, succeed, expired, session, cancel script
	read, list, lanes, leases, push, drop, source   script
	create                                          script
	rule, settings, replace, block, queues          script
	hold, holds, pools                              script
	polls, prolong                                  script
	beats, collectors, forget, duty                 script
	stats, ping, filtered                           script
}

// namedScript is a script by the name of its file.
type namedScript struct {
	name string
	to   *script
}

// all are the fields, in the order in which the library has them.
func (s *scripts) all() []namedScript {
	return []namedScript{
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
		{"lanes", &s.lanes},
		{"leases", &s.leases},
		{"push", &s.push},
		{"drop", &s.drop},
		{"source", &s.source},
		{"create", &s.create},
		{"rule", &s.rule},
		{"settings", &s.settings},
		{"replace", &s.replace},
		{"block", &s.block},
		{"queues", &s.queues},
		{"hold", &s.hold},
		{"holds", &s.holds},
		{"pools", &s.pools},
		{"polls", &s.polls},
		{"prolong", &s.prolong},
		{"beats", &s.beats},
		{"collectors", &s.collectors},
		{"forget", &s.forget},
		{"duty", &s.duty},
		{"stats", &s.stats},
		{"ping", &s.ping},
		{"filtered", &s.filtered},
	}
}

// loadScripts puts the scripts together. It fails only when the files built in
// do not fit together.
func loadScripts() (*scripts, *library, error) {
	var s scripts
	all := s.all()
	defined, called, err := readParts("lua/prelude", prelude)
	if err != nil {
		return nil, nil, err
	}
	var code strings.Builder
	code.WriteString("local KEYS, ARGV\n" + defined + function("begin", "KEYS, ARGV = keys, args\n"+called))
	flags := make([]string, len(all))
	for i, field := range all {
		var text string
		if text, flags[i], err = readScript(field.name); err != nil {
			return nil, nil, err
		}
		code.WriteString(text)
	}
	text := stripComments(code.String())
	sum := sha256.Sum256([]byte(text + fmt.Sprint(flags)))
	version := hex.EncodeToString(sum[:6])
	var register strings.Builder
	for i, field := range all {
		*field.to = script(functionPrefix + field.name + "_" + version)
		fmt.Fprintf(&register, "redis.register_function{ function_name = '%s', callback = scripts.%s, flags = { %s } }\n",
			*field.to, field.name, quoteFlags(flags[i]))
	}
	name := functionPrefix + version
	return &s, &library{name, "#!lua name=" + name + "\nlocal scripts = {}\n" + text + register.String()}, nil
}

// readScript reads a script and the parts that it uses, as one block of Lua that
// makes a function of them, and its flags.
func readScript(name string) (text, flags string, err error) {
	body, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		return "", "", fmt.Errorf("script %s: %w", name, err)
	}
	uses, _ := headerLine(string(body), usesMark)
	once, each, err := readParts("lua/parts", strings.Fields(uses))
	if err != nil {
		return "", "", fmt.Errorf("script %s: %w", name, err)
	}
	flags, ok := headerLine(string(body), flagsMark)
	if !ok {
		flags = defaultFlags
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
		text, err := luaFiles.ReadFile(path.Join(dir, name+".lua"))
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

// loadInto makes sure that the server of a new connection knows all scripts. What
// may not be loaded now is loaded, or fails, when a script is first called: at a
// replica, at a Sentinel, at a Redis that is full, or by a user who may not.
func loadInto(lib *library) func(ctx context.Context, cn *redis.Conn) error {
	return func(ctx context.Context, cn *redis.Conn) error {
		known, err := cn.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: lib.name}).Result()
		if err == nil && len(known) == 0 {
			err = cn.FunctionLoadReplace(ctx, lib.code).Err()
		}
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

// load loads the scripts into the server that has the key.
func (s *Store) load(ctx context.Context, key string) error {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		server, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return err
		}
		return server.FunctionLoadReplace(ctx, s.library.code).Err()
	}
	return s.client.FunctionLoadReplace(ctx, s.library.code).Err()
}
