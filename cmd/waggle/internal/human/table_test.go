package human_test

import (
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

// TestTable wants columns to go below their row by rank, and empty and usual ones before them, until the rest fits; then long cells
// share the room.
func TestTable(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{
		0: `
ID          URL                   N  EMPTY  WHY           KIND
2239-4bl-a  https://a.example/1   7  -      a long story  page
2239-xyz-b  https://a.example/22  0  -      -             -
`,
		62: `
ID          URL                   N  EMPTY  WHY           KIND
2239-4bl-a  https://a.example/1   7  -      a long story  page
2239-xyz-b  https://a.example/22  0  -      -             -
`,
		32: `
ID        URL       N  WHY
2239…l-a  https:/…  7  a long …
2239…z-b  https:/…  0  -
`,
	} {
		table := human.NewTable("ID^5", "URL/2~8", ">N/1", "EMPTY/9", "WHY~2", "KIND/9=page")
		table.Row("2239-4bl-a", "https://a.example/1", "7", "", "a long story", "page")
		table.Row("2239-xyz-b", "https://a.example/22", "0", "", "", "")
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
