package web

import (
	"cmp"
	"net/url"
	"strings"
)

// resolver makes references absolute. Most of them are a name, or a path of names, and need no more than what stands
// before them; to parse them and to write them anew gives the same at twenty times the cost.
type resolver struct {
	base *url.URL

	probed bool
	dir    string // what stands before a reference that begins with a name; empty: it is not known
	root   string // up to the slash behind the host
}

// resolve makes a reference absolute, without its fragment. It fails for what cannot be a task.
func (r *resolver) resolve(ref string) (absolute string, ok bool) {
	if !r.probed {
		r.probe()
	}
	before, rest := r.dir, ref
	if after, found := strings.CutPrefix(ref, "/"); found {
		before, rest = r.root, after
	} else if r.root != "" && strings.HasPrefix(ref, r.root) {
		before, rest = r.root, ref[len(r.root):]
	}
	if before == "" || !isPlain(rest) {
		return r.parse(ref)
	}
	rest, _, _ = strings.Cut(rest, "#")
	absolute = before + rest
	return absolute, len(absolute) <= maxURLLength
}

// probe finds what stands before plain references.
func (r *resolver) probe() {
	const name = "x"
	r.probed = true
	dir, _ := r.parse(name)
	root, _ := r.parse("/" + name)
	r.dir, r.root = strings.TrimSuffix(dir, name), strings.TrimSuffix(root, name)
}

// parse is resolve for any reference.
func (r *resolver) parse(ref string) (absolute string, ok bool) {
	if len(ref) > 2*maxURLLength {
		return "", false
	}
	u, err := parseReference(ref, r.base.Scheme)
	if err != nil {
		return "", false
	}
	u = r.base.ResolveReference(u)
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", false
	}
	u.Fragment, u.RawFragment, u.User = "", "", nil
	u.Path = cmp.Or(u.Path, "/")
	absolute = u.String()
	return absolute, len(absolute) <= maxURLLength
}

// isPlain tells whether a reference is a path of names, none of which begins with a dot, perhaps with a query and a
// fragment, in characters that stand for themselves.
func isPlain(ref string) bool {
	begins, inPath, query := true, true, -1
	for i := range len(ref) {
		c := ref[i]
		switch {
		case isLetter(c), '0' <= c && c <= '9', c == '-', c == '_', c == '~', c == '.' && !begins:
			begins = false
		case c == '/' && !begins:
			begins = inPath
		case c == '?' && inPath && i > 0:
			inPath, begins, query = false, false, i
		case c == '#' && i > query+1:
			return isPlainFragment(ref[i+1:])
		case inPath || strings.IndexByte("=&+:,;@", c) < 0:
			return false
		}
	}
	return ref != "" && query < len(ref)-1
}

func isPlainFragment(fragment string) bool {
	for i := range len(fragment) {
		if c := fragment[i]; !isLetter(c) && (c < '0' || c > '9') && strings.IndexByte("-_~.=:", c) < 0 {
			return false
		}
	}
	return true
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
