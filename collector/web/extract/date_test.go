package extract_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/collector/web/extract"
)

func TestReadTime(t *testing.T) {
	t.Parallel()
	at := time.Date(2024, 3, 5, 8, 4, 9, 0, time.UTC)
	minute := at.Truncate(time.Minute)
	for want, texts := range map[time.Time][]string{
		at: {
			"2024-03-05T08:04:09Z", " 2024-03-05t08:04:09z\n", "2024-03-05T08:04:09", "2024-03-05 08:04:09", "2024-03-05 08:04:09 +0000",
			"2024-03-05T03:04:09-05:00", "2024-03-05T03:04:09-0500", "2024-03-05T03:04:09-05", "2024-03-05T08:04:09+00", "2024-03-05T08:04:09.000Z",
			"2024-03-05 08:04:09+00:00", "2024-03-05 08:04:09 UTC", "2024-03-05 13:34:09 +05:30", "2024-03-05 09:04:09 +0100 CET", "2024-03-05T09:04:09+01:00[Europe/Berlin]",
			"20240305T080409Z", "20240305T170409+0900", "2024/03/05 08:04:09", "2024-3-5 8:04:09", "2024-03-05T03:04:09\u221205:00",
			"Tue, 05 Mar 2024 08:04:09 GMT", "Tue, 5 Mar 2024 08:04:09 +0000 (UTC)", "Tue, 05 Mar 2024 (a day) 08:04:09 +0000", "05 Mar 24 08:04:09 Z",
			"Tue,05 Mar 2024 08:04:09 UT", "Tuesday, 05-Mar-24 08:04:09 GMT", "Tue Mar  5 08:04:09 2024", "Tue Mar  5 08:04:09 UTC 2024",
			"Tue, 05 Mar 2024 17:04:09 JST", "Tue, 05 Mar 2024 18:04:09 AEST", "Tue, 05 Mar 2024 11:04:09 MSK", "Tue, 05 Mar 2024 10:04:09 GMT+2",
			"Tue, 05 Mar 2024 10:04:09 GMT +0200", "Tue, 05 Mar 2024 03:04:09 UTC-05:00", "Tue, 05 Mar 2024 03:04:09 EST", "Tue, 05 Mar 2024 17:04:09 KST",
			"Tue, 05 March 2024 08:04:09 +0000", "Tues, 05 Mar. 2024 08:04:09 +0000", "Tue Mar 05 2024 17:04:09 GMT+0900 (Japan Standard Time)", "Tue, 05 Mar 2024 17:04:09 (JST)",
			"March 5, 2024 3:04:09 AM EST", "Mar 5th, 2024 8:04:09AM", "1709625849", "1709625849000", "1709625849000000", "1709625849.0",
		},
		minute:                     {"2024-03-05T08:04Z", "2024-03-05T08:04", "20240305T0804Z", "Tue, 05 Mar 2024 08:04 GMT", "5 Mar 2024 8:04 +0000"},
		minute.Add(12 * time.Hour): {"5 Mar 2024 8:04 PM", "2024-03-05 08:04pm UTC"},
		time.Date(2024, 3, 6, 0, 0, 0, 0, time.UTC):     {"2024-03-05", "20240305", "2024/03/05", "5 March 2024", "Tue, 05 Mar 2024", "2024-03-05Z", "2024-03-05T24:00:00Z", "2024-03-05T23:59:60Z"},
		time.Date(2024, 3, 5, 22, 0, 0, 0, time.UTC):    {"2024-03-05+02:00"},
		time.Date(2024, 3, 1, 0, 0, 0, 0, time.UTC):     {"2024-02", "Feb 2024", "2024-02-29"},
		time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC):     {"2024", "2024-12", "31-Dec-2024"},
		time.Date(1994, 11, 6, 8, 49, 37, 0, time.UTC):  {"Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"}, // RFC 9110
		time.Date(2024, 3, 5, 8, 4, 9, 123e6, time.UTC): {"2024-03-05T08:04:09.123Z", "2024-03-05T08:04:09,123+0000", "1709625849123"},
		{}: {
			"", "soon", "yesterday", "12", "120", "2024-13-01", "2024-00-01", "2024-02-30", "2024-03-05T25:00:00Z", "2024-03-05T08:60Z", "2024-03-05 08", "08:04:09",
			"Tue, 05 Mar 2024 08:04:09 IST", "Tue, 05 Mar 2024 08:04:09 Lummerland", "Tue, 05 Mar 2024 08:04:09 +2500", "Tue, 05 Mar 2024 08:04:09 +0199",
			"2024-03-05T09:04:09[Europe/Atlantis]", "05/03/2024 08:04:09", "05.03.2024", "32 Mar 2024", "Mar 2024 08:04:09", "5 Mar 2024 13:04 PM", "-1709625849", "2024-03-05 2023",
		},
	} {
		for _, text := range texts {
			if got := extract.ReadTime(text); !got.Equal(want) {
				t.Errorf("%q: %v, want %v", text, got, want)
			}
		}
	}
}

// FuzzReadTime holds that any text is a time or none, that what is written again is the same, and that the forms that the
// standards define, as the standard library reads them, are times.
func FuzzReadTime(f *testing.F) {
	for _, text := range []string{
		"Tue, 05 Mar 2024 08:04:09 GMT+2 (x)", "2024-03-05T08:04:09.5-05:00[UTC]", "20240305T0804Z", "March 5th, 2024 8:04AM", "1709625849",
		"2024-03-05T08:04:09+05:30", "Tue, 05 Mar 2024 08:04:09 -0330", "Tue Mar  5 08:04:09 2024",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := extract.ReadTime(text)
		if got.Location() != time.UTC {
			t.Errorf("%q: in %v", text, got.Location())
		}
		if again := extract.ReadTime(got.Format(time.RFC3339Nano)); !got.IsZero() && got.Year() > 0 && got.Year() < 10000 && !again.Equal(got) {
			t.Errorf("%q: %v, and then %v", text, got, again)
		}
		for _, layout := range []string{time.RFC3339, time.RFC1123Z, time.ANSIC, http.TimeFormat} {
			want, err := time.Parse(layout, text)
			if _, offset := want.Zone(); err == nil && want.Year() > 0 && max(offset, -offset) <= 14*60*60 && len(text) <= 128 && !got.Equal(want) {
				t.Errorf("%q: %v, want %v", text, got, want)
			}
		}
	})
}
