package human

import "slices"

// sparks are the columns of a Spark, from the lowest on.
var sparks = []rune("▁▂▃▄▅▆▇█")

// Spark draws a column for each value, the highest as high as a line: ▂▄█·▁. A dot stands for 0 and less.
func Spark(values []int64) string {
	if len(values) == 0 {
		return ""
	}
	highest := float64(slices.Max(values))
	text := make([]rune, len(values))
	for i, v := range values {
		if text[i] = '·'; v > 0 {
			text[i] = sparks[int(float64(v)/highest*float64(len(sparks)-1))]
		}
	}
	return string(text)
}
