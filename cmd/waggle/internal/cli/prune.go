package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

const (
	// prunePercent of what --prune is about, and pruneAlways in any case, may go unless --prune-max names another bound:
	// a list that was cut short lacks more than that, and ordinary housekeeping takes out less.
	prunePercent = 10
	pruneAlways  = 10

	// shownPruned is how many of those that would go a refusal names.
	shownPruned = 3
)

// PruneBound is how much --prune may delete. A plain-text file that was cut short looks like one whose other lines were taken
// out.
type PruneBound struct {
	yes  bool
	most int // -1: the default
}

// Register adds the flags; things are what --prune deletes, by what they are named.
func (b *PruneBound) Register(flags *pflag.FlagSet, things string) {
	flags.BoolVar(&b.yes, "yes", false, "delete what --prune finds, without "+things+" being named one by one")
	usage := fmt.Sprintf("delete nothing if --prune would delete more than this `number` (default %d%%, or %d if that is more)", prunePercent, pruneAlways)
	flags.IntVar(&b.most, "prune-max", -1, usage)
	flags.Lookup("prune-max").DefValue = "0" // help does not show it
}

// Check wants --yes with --prune, unless nothing is to be changed.
func (b *PruneBound) Check(prune, dryRun bool) error {
	switch {
	case b.most >= 0 && !prune:
		return Usagef("--prune-max is the bound of --prune, which is missing")
	case prune && !b.yes && !dryRun:
		return Usagef("--prune deletes whatever the file does not have: look with --dry-run, then say --yes")
	}
	return nil
}

// Refusal is why some of all things are too many to delete, and what lets them go; empty: they are not. The first names
// stand for all.
func (b *PruneBound) Refusal(some, all int, thing string, first []string) string {
	bound := b.most
	if bound < 0 {
		bound = max(all*prunePercent/100, pruneAlways)
	}
	if some <= bound {
		return ""
	}
	names := strings.Join(first[:min(len(first), shownPruned)], ", ")
	if some > shownPruned {
		names += ", ..."
	}
	return fmt.Sprintf("--prune would delete %s of %s (%s), more than %s: is the file whole? If it is, --prune-max %d lets them go",
		human.Count(some), human.Plural(all, thing), names, human.Count(bound), some)
}
