package human_test

import (
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

// TestTable wants columns dropped by rank, and empty and usual ones before them, until the rest fits; then long cells share the room.
func TestTable(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{
		0: `
ID    URL                   N  EMPTY  WHY           KIND
a     https://a.example/1   7  -      a long story  page
long  https://a.example/22  0  -      -             -
`,
		46: `
ID    URL                   N  WHY
a     https://a.example/1   7  a long story
long  https://a.example/22  0  -
`,
		30: `
ID    URL        N  WHY
a     https://…  7  a long s…
long  https://…  0  -
`,
		18: `
ID    WHY
a     a long story
long  -
`,
		5: `
ID    WHY
a     a …
long  -
`,
	} {
		table := human.NewTable("ID", "URL/2~8", ">N/1", "EMPTY/9", "WHY~2", "KIND/9=page")
		table.Row("a", "https://a.example/1", "7", "", "a long story", "page")
		table.Row("long", "https://a.example/22", "0", "", "", "")
		var got strings.Builder
		table.Write(human.Output{Writer: &got, Width: width}, "")
		if got.String() != want[1:] {
			t.Errorf("at %d:\n%s\nwant%s", width, got.String(), want)
		}
	}
	var got strings.Builder
	human.NewTable("ID").Write(&got, "nothing")
	if got.String() != "nothing\n" {
		t.Errorf("no rows: %q", got.String())
	}
}
