package extract_test

import (
	"testing"

	"github.com/waggle-crawl/waggle/collector/web/extract"
)

func TestCharset(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		begin, contentType string
		want               bool
	}{
		{`<meta charset="utf-8">`, "text/html", true},
		{`<META CHARSET = UTF-8>`, "text/html", true},
		{`<meta http-equiv="Content-Type" content="text/html; charset=UTF-8" />`, "", true},
		{`<meta charset='utf-8' content="x; charset=utf-8">`, "", true},
		{`<meta charset=utf8>`, "", true},
		{`<meta charset=utf-8>`, "text/html; charset=iso-8859-1", false},
		{`<meta charset=iso-8859-1>`, "text/html; Charset=UTF-8", true},
		{`<meta charset=utf-8><meta charset=iso-8859-1>`, "", true},
		{`<!-- charset=utf-8 --><meta charset=iso-8859-1>`, "", false},
		{`<meta charset=iso-8859-1><!-- charset=utf-8 -->`, "", false},
		{`<meta charset=utf-8x>`, "", true}, // there is no such thing
		{`<meta charset=utf-8`, "", true},
		{`<meta charset>`, "", true},
		{`<meta content="text/html; charset=koi8-r" http-equiv=content-type>`, "", false},
		{"\ufeff<p>", "", true},
		{"<p>ä</p>", "", true},
		{"<p>", "", true},
		{"<p>", "text/html", true},
		{"<p>", "text/html; charset=latin1", false},
		{"<p>", "text/html; charset=klingon", true},
		{"<script charset=latin1>", "", true},
		{"", "", true},
	} {
		if got := extract.IsUTF8(test.begin, test.contentType); got != test.want {
			t.Errorf("%q, %q: UTF-8: %t", test.begin, test.contentType, got)
		}
	}
}
