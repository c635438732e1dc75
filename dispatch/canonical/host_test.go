package canonical_test

import (
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

// spellings are hosts with their other spellings, by the host parser of WHATWG's URL standard.
var spellings = map[string][]string{
	"127.0.0.1": {
		"127.1", "127.0.1", "127.0.0.1.", "2130706433", "2130706433.", "0x7f.1", "0X7F.1", "0x7f000001", "0177.0.0.1", "017700000001",
		"0x7f.0.0.0x1", "127.0x0.00.1", "00000000000000000000000177.1", "①②⑦.0.0.1", "①②⑦。⓪．0｡１", "１２７．１", "%31%32%37.1", "0%78%37f.1",
		"127.0.0.1\u00ad", "[::ffff:127.0.0.1]", "[::FFFF:7f00:1]",
	},
	"0.0.0.0":         {"0", "0x", "0.0x.0", "00", "0.0.0.0x"},
	"192.168.0.1":     {"0xc0.0250.01", "%30%78%63%30%2e%30%32%35%30.01", "192.0x00A80001", "%30%78%63%30%2e%30%32%35%30.01%2e", "０Ｘｃ０．０２５０．０１"},
	"255.255.255.255": {"0xffffffff", "4294967295", "037777777777", "255.0xffffff"},
	"[::1]":           {"[0:0:0:0:0:0:0:1]", "[::0001]", "[0::1]", "[::0.0.0.1]"},
	"[2001:db8::1]":   {"[2001:DB8:0:0::1]", "[2001:0db8::0.0.0.1]"},
	"[1:0:2::3]":      {"[1:0:2:0:0:0:0:3]"},
	"example.com": {
		"EXAMPLE.com.", "ex%61mple.com", "ex%41mple%2ecom", "ｅｘａｍｐｌｅ。com", "exam\u00adple.com", "exam%C2%ADple.com", "ex\u2060ample\u200b.com",
	},
	"xn--bcher-kva.example": {"bücher.example", "BÜCHER.example", "bu\u0308cher.example", "b%C3%BCcher.example", "b%c3%bccher.example", "XN--BCHER-KVA.example"},
	"xn--zca.example":       {"ß.example", "%C3%9F.example"},
	"a_b.xn--tda.example":   {"A_b.ü.example"},
	"ab--c.xn--zca":         {"ab--c.ß"},
	"-x.xn--zca":            {"-x.ß", "-X.xn--zca"},
	"xn--1ch":               {"≠"},
	"0x7g.1a":               {"0X7G.1A"},
	"1.2.3.4.5.a":           {"1.2.3.4.5.A"},
	"1.xn--mhb":             {"1.\u064a"}, // a label of digits beside one in Arabic
}

// All spellings of a host are one host, with one queue.
func TestHost_spellings(t *testing.T) {
	t.Parallel()
	for want, others := range spellings {
		for _, host := range append(others, want) {
			for _, test := range [][2]string{{"http://" + host + "/x", want}, {"https://" + host + ":080/x", want + ":80"}, {"HTTP:\\\\" + host, want}} {
				got, err := canonical.Parse(canonical.Plain, test[0])
				if err != nil || got.Host != test[1] {
					t.Errorf("the host of %q is %q, %v; want %q", test[0], got.Host, err, test[1])
				}
				scheme, _, _ := strings.Cut(strings.ToLower(test[0]), ":")
				if begin := scheme + "://" + test[1]; err == nil && (!strings.HasPrefix(got.Canonical, begin+"/") || !strings.HasPrefix(got.Address, begin)) {
					t.Errorf("%q has the key %q and is fetched as %q; want both to begin with %q", test[0], got.Canonical, got.Address, begin)
				}
			}
		}
	}
}

// A host that ends in a number is an IPv4 address or an error; names that IDNA refuses, and characters that no name
// has, are errors too.
func TestHost_refuses(t *testing.T) {
	t.Parallel()
	for _, host := range []string{
		"256.256.256.256", "127.0.0.256", "1.2.3.4.5", "1.2.3.08", "09", "a.1", "example.0x1F", "example.com.7.", "4294967296",
		"0x100000000", "1.16777216.1", "256.1", "1.65536.1.1", "127..1", "1e2.1", "-1.1", "０xx.1", "a.①",
		"[1::2::3]", "[::1", "::1", "[]", "[1.2.3.4]", "[::1%25eth0]", "[::1%eth0]", "[:1]", "[::g]", "[00001::]", "[v1.a]", "a[::1]", "[::1]a", "[%3A%3A1]",
		"xn--a", "xn--a.ß", "xn--tešla", "xn--", "xn--zn7c.com", "\ufffd.com", "\u200d.example", "xn--1ug.example", "\u064a.1", "\u00ad",
		"a%00b", "a%20b", "a%2fb", "a%3ab", "a%40b", "a%5bb", "a%25b", "a%7fb", "a%", "a%zz", "a%ff", "a<b", "a^b", "a|b", "℀.com", "a／b", "％41.com", "a：80",
		"a{b}", "。com", "a。。b",
	} {
		for _, raw := range []string{"http://" + host + "/", "https://" + host + ":8080/"} {
			if got, err := canonical.Host(raw); err == nil {
				t.Errorf("the host of %q is %q; want an error", raw, got)
			}
		}
	}
}

// People's names of queues are no hosts of URLs: a queue that is called 7 is not 0.0.0.7.
func TestQueueName_numbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"7": "7", "2024": "2024", "news.7": "news.7", "127.0.0.1": "127.0.0.1", "127.0.0.1:80": "127.0.0.1:80", "http://127.1/": "127.0.0.1", "①.example": "1.example",
	} {
		if got := canonical.QueueName(text); got != want {
			t.Errorf("QueueName(%q) = %q, want %q", text, got, want)
		}
	}
}
