package canonical_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

// FuzzForm holds what is true of all URLs that are taken: the canonical form and what is fetched stay what they are when
// they are canonicalised again, they have the host that others parse out of them, and the host is a valid one.
func FuzzForm(f *testing.F) {
	for i, test := range canonicalForms {
		f.Add(test.raw, i%2 == 0)
	}
	for host, others := range spellings {
		f.Add("http://"+host+":8080/", true)
		for _, other := range others {
			f.Add("https://"+other+"/", false)
		}
	}
	for _, raw := range withCredentials {
		f.Add(raw, true)
	}
	f.Fuzz(func(t *testing.T, raw string, sorted bool) {
		rules := canonical.Plain
		if sorted {
			rules = canonical.Sorted
		}
		got, err := canonical.Parse(rules, raw)
		if err != nil {
			if len(raw) <= canonical.MaxLength && canonical.HasCredentials(raw) != strings.Contains(err.Error(), "user name") {
				t.Errorf("%q: credentials %t, but %v", raw, canonical.HasCredentials(raw), err)
			}
			return
		}
		checkHost(t, got.Host)
		for name, text := range map[string]string{"canonical form": got.Canonical, "address": got.Address} {
			if u, err := url.Parse(text); err != nil || u.Host != got.Host || u.User != nil {
				t.Errorf("%q: net/url finds another host than %q in the %s %q: %v", raw, got.Host, name, text, err)
			}
			if len(text) > canonical.MaxLength {
				continue
			}
			if again, err := canonical.Parse(rules, text); err != nil || again.Canonical != got.Canonical || again.Host != got.Host {
				t.Errorf("%q: the %s %q becomes %+v, %v; want %+v", raw, name, text, again, err, got)
			}
		}
		if again, err := canonical.Parse(rules, got.Address); err == nil && again.Address != got.Address {
			t.Errorf("%q: the address %q becomes %q", raw, got.Address, again.Address)
		}
		if plain, err := canonical.Form(canonical.Plain, raw); sorted && err == nil && len(plain) <= canonical.MaxLength {
			if again, err := canonical.Form(rules, plain); err != nil || again != got.Canonical {
				t.Errorf("%q has the form %q, but its plain form %q has %q, %v", raw, got.Canonical, plain, again, err)
			}
		}
		if redacted := canonical.RedactedURL(got.Canonical); redacted != got.Canonical && !strings.ContainsAny(got.Canonical, "@%") {
			t.Errorf("%q is shown as %q", got.Canonical, redacted)
		}
	})
}

// checkHost checks that a host is valid and canonical, with or without a port, and that other spellings of it are it.
func checkHost(t *testing.T, host string) {
	t.Helper()
	name, port := host, ""
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		name, port = host[:i], host[i:]
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	switch address, isIPv6 := strings.CutPrefix(name, "["); {
	case isIPv6:
		if ip, err := netip.ParseAddr(strings.TrimSuffix(address, "]")); err != nil || ip.Is4In6() || "["+ip.String()+"]" != name {
			t.Errorf("the host %q is no canonical IPv6 address: %v", host, err)
		}
	case strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") && strings.Trim(last[2:], "0123456789abcdef") == "":
		if ip, err := netip.ParseAddr(name); err != nil || !ip.Is4() || ip.String() != name {
			t.Errorf("the host %q ends in a number and is no canonical IPv4 address: %v", host, err)
		}
	case strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.~!$&'()*+,;=") != "" || strings.Contains("."+name+".", "..") || len(name) > 253:
		t.Errorf("the host %q is no name", host)
	}
	if got := canonical.QueueName("http://" + host + "/"); got != host && port != ":80" {
		t.Errorf("the host %q names the queue %q", host, got)
	}
	if strings.HasPrefix(name, "[") {
		return
	}
	for _, spelling := range []string{strings.ToUpper(name), escaped(name), wide(name), name + "."} {
		if got, err := canonical.Host("https://" + spelling + port + "/"); port != ":443" && (err != nil || got != host) {
			t.Errorf("%q, a spelling of %q, is the host %q: %v", spelling, host, got, err)
		}
	}
}

// escaped is a text with each byte percent-encoded.
func escaped(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		fmt.Fprintf(&b, "%%%02x", c)
	}
	return b.String()
}

// wide is a text in full-width forms, with ideographic full stops.
func wide(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '.':
			return '。'
		case r > ' ' && r < 0x7f:
			return r - '!' + '！'
		}
		return r
	}, text)
}

// FuzzHost_address spells an IPv4 address in all ways that WHATWG's URL standard has: in one to four numbers, each in a
// base, with zeros before it, in another script or percent-encoded. They are one host.
func FuzzHost_address(f *testing.F) {
	f.Add(uint32(0x7f000001), uint8(1), uint64(0))
	f.Add(uint32(0x7f000001), uint8(2), uint64(0x111111))
	f.Add(uint32(0xc0a80001), uint8(3), uint64(0x222222222222))
	f.Add(uint32(0xffffffff), uint8(0), uint64(0x0123456789abcdef))
	f.Add(uint32(0), uint8(0), uint64(1<<63))
	f.Fuzz(func(t *testing.T, address uint32, shorter uint8, style uint64) {
		var bytes [4]byte
		binary.BigEndian.PutUint32(bytes[:], address)
		want := netip.AddrFrom4(bytes).String()
		parts := int(shorter%4) + 1
		var spelling string
		for i := range parts {
			number := uint64(bytes[i])
			if i == parts-1 {
				number = uint64(address) & (1<<(8*(5-parts)) - 1)
			}
			how := style >> (12 * i)
			zeros := strings.Repeat("0", int(how>>2&7))
			part := fmt.Sprintf([]string{"%[2]d", "0%[1]s%[2]o", "0x%[1]s%[2]x", "0X%[1]s%[2]X"}[how&3], zeros, number)
			switch how >> 5 & 3 {
			case 1:
				part = escaped(part)
			case 2:
				part = wide(part)
			}
			spelling += part + []string{".", "。", "%2E", "．"}[how>>7&3]
		}
		if style>>63 == 0 {
			spelling = strings.TrimSuffix(strings.TrimRight(spelling, ".。．"), "%2E")
		}
		for _, raw := range []string{"http://" + spelling + "/", "HTTPS:\\\\" + spelling + ":0443"} {
			if got, err := canonical.Host(raw); err != nil || got != want {
				t.Errorf("the host of %q is %q, %v; want %q", raw, got, err, want)
			}
		}
	})
}
