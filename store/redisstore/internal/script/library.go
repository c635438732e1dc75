package script

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/waggle-crawl/waggle/store/redisstore/lua"
)

// What the lines of a file say of a script in it.
const (
	// beginMark begins the line of a script, up to its name.
	beginMark = "function scripts."
	// flagsMark begins the line before it with the flags of the function, for a script
	// that is not to run when Redis is full ("none"), or that only reads.
	flagsMark    = "-- flags: "
	defaultFlags = "allow-oom"
	// acknowledgedMark is the line before it of a script that lua/acknowledge.lua counts.
	acknowledgedMark = "-- acknowledged"
)

// files are those of lua/, in their order: what one uses while it is loaded stands before it.
var files = []string{
	"base", "key", "record", "shard", "source", "rule", "gate", "lane", "queue", "lanes", "pool", "place", "named", "settled", "history",
	"task", "lock", "lease", "token", "grant", "pick", "turn", "polite", "narrow", "claim", "apply", "success", "renew", "sweep", "submit", "again",
	"sources", "drop", "queues", "list", "hold", "collector", "session", "duty", "binding", "audit", "acknowledge",
	"check", "checktask", "checkqueue", "checksource", "portable", "portabletotals", "finish",
}

// functionPrefix begins the names of all functions that a store loads, and of the
// libraries that hold them.
const functionPrefix = "waggle_"

// Name is a script: its name in lua/.
type Name string

// The scripts.
const (
	Apply      Name = "apply"
	Audit      Name = "audit"
	Beats      Name = "beats"
	Bind       Name = "bind"
	Cancel     Name = "cancel"
	Claim      Name = "claim"
	Collectors Name = "collectors"
	Create     Name = "create"
	Drop       Name = "drop"
	DropLeased Name = "dropleased"
	DueLanes   Name = "duelanes"
	Duty       Name = "duty"
	Expired    Name = "expired"
	Filtered   Name = "filtered"
	Forget     Name = "forget"
	GiveBack   Name = "giveback"
	Hold       Name = "hold"
	Holds      Name = "holds"
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
	Release    Name = "release"
	Renew      Name = "renew"
	Replace    Name = "replace"
	Replay     Name = "replay"
	Rule       Name = "rule"
	Session    Name = "session"
	Settings   Name = "settings"
	Source     Name = "source"
	Stats      Name = "stats"
	Statuses   Name = "statuses"
	Submit     Name = "submit"
	Succeed    Name = "succeed"
	Unblock    Name = "unblock"
)

// The scripts of a check.
const (
	CheckBeside     Name = "checkbeside"
	CheckCollectors Name = "checkcollectors"
	CheckCounts     Name = "checkcounts"
	CheckEntries    Name = "checkentries"
	CheckGrants     Name = "checkgrants"
	CheckHome       Name = "checkhome"
	CheckLanes      Name = "checklanes"
	CheckLeased     Name = "checkleased"
	CheckLeases     Name = "checkleases"
	CheckNamed      Name = "checknamed"
	CheckQueues     Name = "checkqueues"
	CheckSettled    Name = "checksettled"
	CheckShard      Name = "checkshard"
	CheckSources    Name = "checksources"
	CheckTasks      Name = "checktasks"
)

// The scripts of a copy.
const (
	ExportCollectors Name = "exportcollectors"
	ExportGates      Name = "exportgates"
	ExportQueues     Name = "exportqueues"
	ExportTotals     Name = "exporttotals"
	ImportCollectors Name = "importcollectors"
	ImportGates      Name = "importgates"
	ImportQueues     Name = "importqueues"
	ImportStatuses   Name = "importstatuses"
	ImportTasks      Name = "importtasks"
	ImportTokens     Name = "importtokens"
	ImportTotals     Name = "importtotals"
)

// Library is all scripts with their prelude as one library of Redis functions. It is named by
// its content: programs of several versions work side by side.
type Library struct {
	name, code, version string
	acknowledged        map[Name]bool
}

// function is the name of the Redis function that a script is.
func (l *Library) function(name Name) string { return functionPrefix + string(name) + l.version }

// Assemble puts the scripts together. It fails only when the files built in do not fit together.
func Assemble() (*Library, error) {
	var code, register strings.Builder
	acknowledged := make(map[Name]bool)
	for i, file := range files {
		text, err := lua.Files.ReadFile(file + ".lua")
		if err != nil {
			return nil, fmt.Errorf("scripts: %w", err)
		}
		registerScripts(&register, string(text), acknowledged)
		if i == 0 {
			code.Write(text) // what it defines is there for all
		} else {
			fmt.Fprintf(&code, "do\n%s\nend\n", text)
		}
	}
	text := stripComments(code.String()) + register.String()
	sum := sha256.Sum256([]byte(text))
	version := hex.EncodeToString(sum[:6])
	lib := &Library{name: functionPrefix + version, version: "_" + version, acknowledged: acknowledged}
	lib.code = fmt.Sprintf("#!lua name=%s\nlocal version = '%s'\n%s", lib.name, lib.version, text)
	return lib, nil
}

// registerScripts appends the registration of the scripts in a file, and notes those that are acknowledged. Those return
// how many calls were lost before what they return otherwise.
func registerScripts(b *strings.Builder, text string, acknowledged map[Name]bool) {
	flags, result := defaultFlags, "scripts.%s()"
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if given, ok := strings.CutPrefix(line, flagsMark); ok {
			flags = given
		}
		if line == acknowledgedMark {
			result = "{ acknowledge(), scripts.%s() }"
		}
		rest, ok := strings.CutPrefix(line, beginMark)
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(rest, "(")
		acknowledged[Name(name)] = result[0] == '{'
		quoted := ""
		if flags != "none" {
			quoted = "'" + strings.Join(strings.Fields(flags), "', '") + "'"
		}
		fmt.Fprintf(b, `redis.register_function{ function_name = '%s%s' .. version, flags = { %s }, callback = function(keys, args)
begin(keys, args)
return %s
end }
`, functionPrefix, name, quoted, fmt.Sprintf(result, name))
		flags, result = defaultFlags, "scripts.%s()"
	}
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
