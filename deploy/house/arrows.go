package main

import (
	"fmt"
	"go/token"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// arrow leads from a file to another of its package that declares something it uses: at package level, a method or a field.
type arrow struct{ from, to string }

// arrows are those of a package, with the names of what is used.
type arrows map[arrow]map[string]bool

func (m *module) arrowsIn(p *packages.Package) (a arrows, files []string) {
	a = make(arrows)
	fileOf := func(pos token.Pos) string { return m.files[p.Fset.Position(pos).Filename] }
	for _, f := range p.Syntax {
		if file := fileOf(f.Pos()); file != "" {
			files = append(files, file)
		}
	}
	for ident, obj := range p.TypesInfo.Uses {
		at := arrow{fileOf(ident.Pos()), fileOf(obj.Pos())}
		isLocal := obj.Parent() != nil && obj.Parent() != p.Types.Scope() // methods and fields have no parent
		if obj.Pkg() != p.Types || isLocal || at.from == at.to || at.from == "" || at.to == "" {
			continue
		}
		if a[at] == nil {
			a[at] = make(map[string]bool)
		}
		a[at][obj.Name()] = true
	}
	return a, files
}

// back are the arrows that run back: from a file to an earlier one, in the order of files that has the fewest of them. An exact
// search is too slow. So this takes the best of some tries: each begins with a random order, and moves single files while that
// helps.
func (a arrows) back(files []string) (best []arrow) {
	const tries = 50
	random := rand.New(rand.NewPCG(1, 1)) // the same in each run
	for try := range tries {
		random.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
		order := slices.Clone(files)
		for improved := true; improved; {
			improved = false
			for _, file := range files {
				at := slices.Index(order, file)
				rest := slices.Delete(slices.Clone(order), at, at+1)
				costs := []int{0} // of standing behind so many of the rest, beside standing before all
				for i, other := range rest {
					costs = append(costs, costs[i]+min(len(a[arrow{file, other}]), 1)-min(len(a[arrow{other, file}]), 1))
				}
				if least := slices.Min(costs); least < costs[at] {
					order, improved = slices.Insert(rest, slices.Index(costs, least), file), true
				}
			}
		}
		var found []arrow
		for at := range a {
			if slices.Index(order, at.to) < slices.Index(order, at.from) {
				found = append(found, at)
			}
		}
		if try == 0 || len(found) < len(best) {
			best = found
		}
	}
	slices.SortFunc(best, func(x, y arrow) int { return strings.Compare(x.from+" "+x.to, y.from+" "+y.to) })
	return best
}

// arrows prints how many arrows each package has and how many run back, and those of packages where they are too many.
func (s *sheet) arrows(m *module) {
	const row = "  %-32s %5d %6d %5d %3d %%%s\n"
	fmt.Fprintf(s.out, "\nArrows between files, and those that run back (under %d %%)\n", maxBack)
	fmt.Fprintf(s.out, "  %-32s %5s %6s %5s\n", "package", "files", "arrows", "back")
	var details strings.Builder
	for _, p := range m.packages {
		a, files := m.arrowsIn(p)
		if len(a) == 0 {
			continue
		}
		back, verdict := a.back(files), ""
		if 100*len(back) >= maxBack*len(a) {
			s.over++
			verdict = "  OVER"
			fmt.Fprintf(&details, "\n  %s\n", m.short(p.PkgPath))
			for _, at := range back {
				uses := strings.Join(slices.Sorted(maps.Keys(a[at])), " ")
				fmt.Fprintf(&details, "    %.76s\n", path.Base(at.from)+" -> "+path.Base(at.to)+": "+uses)
			}
		}
		fmt.Fprintf(s.out, row, m.short(p.PkgPath), len(files), len(a), len(back), 100*len(back)/len(a), verdict)
	}
	fmt.Fprint(s.out, details.String())
}
