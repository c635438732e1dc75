package sourceimport

import (
	"cmp"
	"fmt"
	"hash/fnv"

	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// seen is what came by of a file: the ids of its sources, and the pages that they crawl, as hashes of some 40 bytes.
type seen struct {
	ids map[uint64]seenID
	// pages are the lines of the sources that crawl each page, by what it is in canonical form. Sources know nothing of
	// each other's: two spellings of one URL, in two sources, are crawled twice.
	pages map[uint64]int
}

// seenID is where an id came by, and a hash of its spec.
type seenID struct {
	line int
	spec uint64
}

func newSeen() *seen { return &seen{ids: make(map[uint64]seenID), pages: make(map[uint64]int)} }

func (s *seen) has(id string) bool {
	_, has := s.ids[hash([]byte(id))]
	return has
}

// add notes an id. It returns the line where the same source came by before, 0 if none did; another source of that id is
// an error.
func (s *seen) add(line int, spec *pb.SourceSpec) (before int, err error) {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(spec)
	if err != nil {
		return 0, fmt.Errorf("cannot be sent: %w", err)
	}
	id, is := hash([]byte(spec.GetId())), seenID{line: line, spec: hash(text)}
	was, met := s.ids[id]
	switch {
	case !met:
		s.ids[id] = is
	case was.spec != is.spec:
		return 0, fmt.Errorf("line %d has the same id, and says something else", was.line)
	}
	return was.line, nil
}

// twin notes the pages of a source, and names one that another source before it crawls.
func (s *seen) twin(line int, spec *pb.SourceSpec) (twin string) {
	for _, seed := range spec.GetSeeds() {
		page, err := canonical.Form(cmp.Or(int(spec.GetCanonicalRules()), 1), seed.GetUrl())
		if err != nil {
			continue // the dispatcher refuses it
		}
		key := hash([]byte(page))
		switch before, met := s.pages[key]; {
		case !met:
			s.pages[key] = line
		case before != line && twin == "":
			twin = fmt.Sprintf("%s is the page that the source of line %d crawls: it is crawled twice, unless one of them goes", seed.GetUrl(), before)
		}
	}
	return twin
}

func hash(text []byte) uint64 {
	h := fnv.New64a()
	h.Write(text)
	return h.Sum64()
}
