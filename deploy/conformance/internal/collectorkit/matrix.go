package collectorkit

import (
	"fmt"
	"slices"
	"strings"
)

// Matrix is which client passes which scenario. Its text is a table that people read and Merge reads again.
type Matrix struct {
	clients []string
	cells   map[[2]string]string // by scenario and client: yes, or no
}

const matrixHead = "# Which client keeps which rule\n\n" +
	"Written by `make protocol-check`, never by hand. A scenario is described by its rule, which begins with its section of the\n" +
	"[manual](../../proto/README.md). `yes`: the client passes; `no`: it does not; `-`: it was not asked.\n\n"

// ParseMatrix reads the text of a matrix; an empty text is an empty matrix.
func ParseMatrix(text string) (*Matrix, error) {
	m := &Matrix{cells: map[[2]string]string{}}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") {
			continue
		}
		fields := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		switch {
		case len(fields) < 2 || m.clients != nil && len(fields) != len(m.clients)+2:
			return nil, fmt.Errorf("the line %q has %d columns", strings.TrimSpace(line), len(fields))
		case m.clients == nil:
			m.clients = slices.Clone(fields[2:])
		default:
			for i, client := range m.clients {
				m.cells[[2]string{strings.Trim(fields[0], "`"), client}] = fields[i+2]
			}
		}
	}
	return m, nil
}

// Merge takes in how a client did.
func (m *Matrix) Merge(client string, results []Result) {
	if !slices.Contains(m.clients, client) {
		m.clients = append(m.clients, client)
		slices.Sort(m.clients)
	}
	for _, r := range results {
		cell := "yes"
		if r.Verdict != "" {
			cell = "no"
		}
		m.cells[[2]string{r.Scenario.Name, client}] = cell
	}
}

// String is the text: a line for each scenario of the table, also for those that nobody was asked for.
func (m *Matrix) String() string {
	var b strings.Builder
	b.WriteString(matrixHead)
	line := func(name, rule string, cell func(client string) string) {
		fmt.Fprintf(&b, "| %s | %s |", name, rule)
		for _, client := range m.clients {
			fmt.Fprintf(&b, " %s |", cell(client))
		}
		b.WriteByte('\n')
	}
	line("scenario", "rule", func(client string) string { return client })
	b.WriteString("|" + strings.Repeat("---|", len(m.clients)+2) + "\n")
	passed := map[string]int{}
	for _, s := range Scenarios() {
		line("`"+s.Name+"`", s.Rule, func(client string) string {
			switch cell := m.cells[[2]string{s.Name, client}]; cell {
			case "yes":
				passed[client]++
				return cell
			case "no":
				return cell
			default:
				return "-"
			}
		})
	}
	line("passed", fmt.Sprintf("of %d", len(Scenarios())), func(client string) string { return fmt.Sprint(passed[client]) })
	return b.String()
}
