package sourceimport

import (
	"cmp"
	"fmt"

	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// shownTwins is how many pages that two sources crawl are told of one by one.
const shownTwins = 5

// seenPages are the lines of the sources that crawl each page, by a hash of what it
// is in canonical form. Sources know nothing of each other's: two spellings of one
// URL, in two sources, are crawled twice.
type seenPages map[uint64]int

// meet notes the pages of a source, and says of one that another source before it
// crawls.
func (p seenPages) meet(line int, spec *pb.SourceSpec) (twin string) {
	for _, seed := range spec.GetSeeds() {
		page, err := canonical.Form(cmp.Or(int(spec.GetCanonicalRules()), 1), seed.GetUrl())
		if err != nil {
			continue // the dispatcher says so
		}
		hash := hash64([]byte(page))
		switch before, met := p[hash]; {
		case !met:
			p[hash] = line
		case before != line && twin == "":
			twin = fmt.Sprintf("%s is the page that the source of line %d crawls: it is crawled twice, unless one of them goes",
				seed.GetUrl(), before)
		}
	}
	return twin
}
