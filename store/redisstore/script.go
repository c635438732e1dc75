package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1; nothing is secured by it.
	"embed"
	"encoding/hex"
	"fmt"
	"path"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua lua/prelude/*.lua
var luaFiles embed.FS

// usesMark begins the last line of a script's header: the parts of the prelude
// that it needs, in their order.
const usesMark = "-- uses: "

// script is a Lua script with its prelude, ready to be sent.
type script struct {
	name, source, sha string
}

// scripts are all scripts of the store. Each field is a file of lua/.
type scripts struct {
	submit, claim, giveback, replay                     *script
	renew, apply, expired, session, cancel              *script
	read, list, push, drop, source                      *script
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
		{"expired", &s.expired},
		{"session", &s.session},
		{"cancel", &s.cancel},
		{"read", &s.read},
		{"list", &s.list},
		{"push", &s.push},
		{"drop", &s.drop},
		{"source", &s.source},
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

// loadScript reads one script and puts its prelude before it.
func loadScript(name string) (*script, error) {
	body, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", name, err)
	}
	_, uses, ok := strings.Cut(string(body), usesMark)
	if !ok {
		return nil, fmt.Errorf("script %s: no line %q", name, usesMark)
	}
	uses, _, _ = strings.Cut(uses, "\n")
	var source strings.Builder
	for part := range strings.FieldsSeq(uses) {
		text, err := luaFiles.ReadFile(path.Join("lua/prelude", part+".lua"))
		if err != nil {
			return nil, fmt.Errorf("script %s uses %s: %w", name, part, err)
		}
		source.Write(text)
	}
	source.Write(body)
	text := stripComments(source.String())
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return &script{name: name, source: text, sha: hex.EncodeToString(sum[:])}, nil
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

// loadInto makes sure that the server of a new connection knows all scripts.
func loadInto(all []*script) func(ctx context.Context, cn *redis.Conn) error {
	hashes := make([]string, len(all))
	for i, s := range all {
		hashes[i] = s.sha
	}
	return func(ctx context.Context, cn *redis.Conn) error {
		known, err := cn.ScriptExists(ctx, hashes...).Result()
		switch {
		case err == nil:
		case isDenied(err):
			// A Sentinel, which runs no scripts, or a user who may not load them:
			// they are sent as a whole then, when they are first run.
			return nil
		default:
			return err
		}
		pipe := cn.Pipeline()
		for i, ok := range known {
			if !ok {
				pipe.ScriptLoad(ctx, all[i].source)
			}
		}
		if pipe.Len() == 0 {
			return nil
		}
		_, err = pipe.Exec(ctx)
		return err
	}
}
