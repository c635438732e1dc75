package script_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
	"github.com/waggle-crawl/waggle/store/redisstore/lua"
)

// maxLocals is how many local variables a function of the scripts may have at a time: Lua 5.1
// refuses more than 200, and the scripts are one library, which then loads none of them.
const maxLocals = 192

// luaToken is what a scan of scopes has to see of Lua: a comment or string, which
// it skips, a name or keyword, or a sign.
var luaToken = regexp.MustCompile(`--[^\n]*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[A-Za-z_]\w*|\S`)

var luaName = regexp.MustCompile(`^[A-Za-z_]`)

// luaScan counts the locals that a text of Lua has at a time.
type luaScan struct {
	tokens []string
	scopes []luaScope
	most   int // of one function
}

type luaScope struct {
	function bool
	locals   int
}

// locals counts the most that one function of a text has at a time, its blocks
// included; the text as a whole is a function, too.
func locals(text string) int {
	s := &luaScan{tokens: luaToken.FindAllString(text, -1), scopes: []luaScope{{function: true}}}
	loop := 0 // the variables of a for whose block is yet to come
	for len(s.tokens) > 0 {
		switch token := s.next(); token {
		case "local":
			if s.peek() == "function" {
				s.declare(1)
			} else {
				s.declare(s.names())
			}
		case "function":
			for s.next() != "(" { // its name
			}
			s.scopes = append(s.scopes, luaScope{function: true})
			s.declare(s.names())
		case "for":
			loop = s.names() + 3 // and what Lua itself keeps of it
		case "do":
			s.scopes = append(s.scopes, luaScope{})
			s.declare(loop)
			loop = 0
		case "then", "repeat":
			s.scopes = append(s.scopes, luaScope{})
		case "else":
			s.scopes[len(s.scopes)-1] = luaScope{}
		case "elseif", "end", "until":
			s.scopes = s.scopes[:len(s.scopes)-1]
		}
	}
	return s.most
}

func (s *luaScan) next() string {
	token := s.tokens[0]
	s.tokens = s.tokens[1:]
	return token
}

// names counts a list of names, and goes behind it.
func (s *luaScan) names() (n int) {
	for ; luaName.MatchString(s.peek()); n++ {
		s.next()
		if s.peek() != "," {
			return n + 1
		}
		s.next()
	}
	return n
}

// peek is the next token; none at the end.
func (s *luaScan) peek() string {
	if len(s.tokens) == 0 {
		return ""
	}
	return s.tokens[0]
}

func (s *luaScan) declare(n int) {
	s.scopes[len(s.scopes)-1].locals += n
	all := 0
	for i := len(s.scopes) - 1; i >= 0; i-- {
		all += s.scopes[i].locals
		if s.scopes[i].function {
			break
		}
	}
	s.most = max(s.most, all)
}

func TestLocals(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 0,
		"local a, b = 1, 'local c' -- local d\nlocal e":                                     3,
		"local function f(a, b, ...) local c end":                                           3,
		"local f = function() end local g":                                                  2,
		"local a do local b, c end local d":                                                 3,
		"local a do local b do local c end end local d":                                     3,
		"for i, v in ipairs(t) do local a end":                                              6,
		"for i = 1, 2 do end local a, b, c, d, e":                                           5,
		"while x do local a end repeat local a, b until b":                                  2,
		"local a if x then local b, c elseif y then local d else local e, f, g end local h": 4,
		"function f() local a, b local function g() local c end end local h":                3,
	} {
		if got := locals(text); got != want {
			t.Errorf("%q has %d locals, want %d", text, got, want)
		}
	}
}

// TestScripts_Locals keeps the scripts below Lua's limit on local variables. Each file but the
// first is a block of its own.
func TestScripts_Locals(t *testing.T) {
	t.Parallel()
	library, err := script.Assemble()
	if err != nil {
		t.Fatal(err)
	}
	most := locals(script.Code(library))
	t.Logf("the most are %d", most)
	if most > maxLocals {
		t.Errorf("a function has %d local variables at a time, want at most %d", most, maxLocals)
	}
	if most < 50 {
		t.Errorf("the most local variables are %d: they are not counted right", most)
	}
}

// TestScripts_Named holds that the scripts which files have are those that Go names.
func TestScripts_Named(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("library.go")
	if err != nil {
		t.Fatal(err)
	}
	library, err := script.Assemble()
	if err != nil {
		t.Fatal(err)
	}
	find := func(pattern, text string) (names []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
		slices.Sort(names)
		return names
	}
	named, registered := find(`Name = "(\w+)"`, string(source)), find(`function_name = 'waggle_(\w+)'`, script.Code(library))
	if len(named) == 0 || !slices.Equal(named, registered) {
		t.Errorf("scripts\n%q, named in Go\n%q", registered, named)
	}
	if files := filesOf(t); !slices.Equal(files, script.FileNames()) {
		t.Errorf("files of lua/\n%q, put together are\n%q", files, script.FileNames())
	}
}

// filesOf are the names of the files of scripts.
func filesOf(t *testing.T) (names []string) {
	t.Helper()
	entries, err := lua.Files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".lua"))
	}
	return names
}
