package extract

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxDateBytes is the longest date that is read.
const maxDateBytes = 128

// ReadTime reads a date as feeds, sitemaps and HTTP headers have them: ISO 8601 and RFC 3339, RFC 822 with its successors,
// the three forms of HTTP (RFC 9110 section 5.6.7), those with the name of a month, and seconds, milliseconds and smaller
// parts since 1970. A day, a month or a year is at its end, when nothing can have changed in it any more. A time without a
// zone is in UTC. The zero time: it cannot be read, or its zone is not known.
func ReadTime(text string) time.Time {
	if text == "" || len(text) > maxDateBytes {
		return time.Time{}
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil && t.Year() > 0 { // most are so: the rest costs many times as much
		return t.UTC()
	}
	if epoch, ok := readEpoch(strings.TrimSpace(text)); ok {
		return epoch
	}
	words, comment := splitDate(text)
	var d date
	for _, word := range words {
		if !d.read(word) {
			return time.Time{}
		}
	}
	if !d.hasZone && comment != "" && d.hasTime {
		if !d.readZone(comment) && strings.Contains(comment, "/") {
			return time.Time{}
		}
	}
	return d.time()
}

// readEpoch reads a time since 1970 by its number of digits: so many that no other form has them, and that seconds are of
// 1973 or later.
func readEpoch(text string) (t time.Time, ok bool) {
	whole, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	_, errFraction := strconv.ParseUint("0"+fraction, 10, 64)
	if err != nil || errFraction != nil || n < 0 {
		return time.Time{}, false
	}
	switch len(whole) {
	case 9, 10:
		return time.Unix(n, 0).UTC(), true
	case 13:
		return time.UnixMilli(n).UTC(), true
	case 16:
		return time.UnixMicro(n).UTC(), true
	case 19:
		return time.Unix(0, n).UTC(), true
	}
	return time.Time{}, false
}

// splitDate splits a date into words in capitals. What is in brackets is a comment of RFC 822, or the name of a zone as in
// RFC 9557: it counts only where nothing else is the zone.
func splitDate(text string) (words []string, comment string) {
	var outside, inside strings.Builder
	depth := 0
	for _, r := range fractionComma.ReplaceAllString(strings.ToUpper(text), "$1.$2") {
		switch r {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case ',':
			outside.WriteByte(' ')
		case '\u2212': // a minus sign
			outside.WriteByte('-')
		default:
			if depth > 0 {
				inside.WriteRune(r)
			} else {
				outside.WriteRune(r)
			}
		}
	}
	return strings.Fields(outside.String()), inside.String()
}

// date is what was read of one so far; 0 is what was not.
type date struct {
	year, month, day                 int
	hour, minute, second, nanosecond int
	hasTime, hasZone, hasOffset      bool
	half                             string // AM or PM
	offset                           int    // of the zone, in minutes
}

var (
	isoDate   = regexp.MustCompile(`^(\d{4})[-/.](\d{1,2})(?:[-/.](\d{1,2})(?:T(.+)|(Z|[-+]\d\d:\d\d))?)?$`)
	basicDate = regexp.MustCompile(`^(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)?(.*))?$`)
	dashed    = regexp.MustCompile(`^(\d{1,2})[-/]([A-Z]+)[-/](\d{2,4})$`)
	clock     = regexp.MustCompile(`^(\d{1,2}):(\d\d)(?::(\d\d)(?:\.(\d+))?)?(AM|PM)?(.*)$`)
	ordinal   = regexp.MustCompile(`^(\d{1,2})(?:ST|ND|RD|TH)?$`)
	// fractionComma is the other sign of ISO 8601 before parts of a second.
	fractionComma = regexp.MustCompile(`(:\d\d),(\d)`)
	offset        = regexp.MustCompile(`^(?:GMT|UTC|UT|Z)?([-+])(\d{1,2})(?::?(\d\d))?$`)
)

// read takes one word of a date in; false: it is not known what it is.
func (d *date) read(word string) bool {
	if m := isoDate.FindStringSubmatch(word); m != nil && d.year == 0 {
		d.year, d.month, d.day = number(m[1]), number(m[2]), number(m[3])
		return d.month > 0 && (m[3] == "" || d.day > 0) && (m[4] == "" || d.read(m[4])) && (m[5] == "" || d.readZone(m[5]))
	}
	if m := basicDate.FindStringSubmatch(word); m != nil && d.year == 0 {
		d.year, d.month, d.day = number(m[1]), number(m[2]), number(m[3])
		at := m[4] + ":" + m[5]
		if m[6] != "" {
			at += ":" + m[6]
		}
		return d.month > 0 && d.day > 0 && (m[4] == "" || d.read(at+m[7]))
	}
	if m := dashed.FindStringSubmatch(word); m != nil {
		return d.read(m[1]) && d.read(m[2]) && d.readYear(m[3])
	}
	if m := clock.FindStringSubmatch(word); m != nil && !d.hasTime {
		d.hour, d.minute, d.second, d.hasTime = number(m[1]), number(m[2]), number(m[3]), true
		d.nanosecond, d.half = number((m[4] + "000000000")[:9]), m[5]
		return d.hour <= 24 && d.minute < 60 && d.second <= 60 && (m[6] == "" || d.readZone(m[6]))
	}
	if m := ordinal.FindStringSubmatch(word); m != nil && d.day == 0 {
		d.day = number(m[1])
		return d.day > 0
	}
	switch {
	case (word == "AM" || word == "PM") && d.hasTime:
		d.half = word
		return true
	case nameOf(word, "MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY SUNDAY") > 0:
		return true
	case d.month == 0 && nameOf(word, months) > 0:
		d.month = nameOf(word, months)
		return true
	case d.year == 0 && '0' <= word[0] && word[0] <= '9':
		return d.readYear(word)
	}
	return d.hasTime && d.readZone(word)
}

// readYear reads a year; one of two or three digits as RFC 5322 has it.
func (d *date) readYear(word string) bool {
	year, err := strconv.Atoi(word)
	switch {
	case err != nil || d.year > 0 || len(word) > 4 || len(word) < 4 && (len(word) == 1 || d.month == 0):
		return false
	case len(word) == 2 && year < 50:
		year += 2000
	case len(word) < 4:
		year += 1900
	}
	d.year = year
	return year > 0
}

// readZone reads a zone. Its offset counts for more than its name beside it, as in "GMT +0200" and "+0900 JST".
func (d *date) readZone(word string) bool {
	if m := offset.FindStringSubmatch(word); m != nil {
		minutes := 60*number(m[2]) + number(m[3])
		if number(m[3]) > 59 || minutes > 14*60 || d.hasOffset {
			return false
		}
		if m[1] == "-" {
			minutes = -minutes
		}
		d.offset, d.hasZone, d.hasOffset = minutes, true, true
		return true
	}
	minutes, known := zones[word]
	if known && !d.hasZone {
		d.offset, d.hasZone = minutes, true
	}
	return known || d.hasOffset
}

// time is what was read; zero when it is no date.
func (d *date) time() time.Time {
	switch hour := d.hour; {
	case d.half != "" && (hour == 0 || hour > 12):
		return time.Time{}
	case d.half == "PM" && hour < 12:
		d.hour += 12
	case d.half == "AM" && hour == 12:
		d.hour = 0
	}
	zone := time.FixedZone("", 60*d.offset)
	day := time.Date(d.year, time.Month(max(d.month, 1)), max(d.day, 1), 0, 0, 0, 0, zone)
	if d.year == 0 || d.month > 12 || day.Day() != max(d.day, 1) || d.month == 0 && d.day > 0 || d.hasTime && d.day == 0 {
		return time.Time{}
	}
	switch {
	case d.hasTime:
		return time.Date(d.year, time.Month(d.month), d.day, d.hour, d.minute, d.second, d.nanosecond, zone).UTC()
	case d.day > 0:
		return day.AddDate(0, 0, 1).UTC()
	case d.month > 0:
		return day.AddDate(0, 1, 0).UTC()
	}
	return day.AddDate(1, 0, 0).UTC()
}

const months = "JANUARY FEBRUARY MARCH APRIL MAY JUNE JULY AUGUST SEPTEMBER OCTOBER NOVEMBER DECEMBER"

// nameOf is the place, from 1, of a name of which word is at least the first three letters; 0: there is none.
func nameOf(word, names string) int {
	word = strings.TrimSuffix(word, ".")
	if len(word) < 3 {
		return 0
	}
	for i, name := range strings.Fields(names) {
		if strings.HasPrefix(name, word) {
			return i + 1
		}
	}
	return 0
}

// number is that of some digits; 0 for none.
func number(digits string) int {
	n, _ := strconv.Atoi(digits) // digits alone, and few
	return n
}

// zones are the names of zones that mean one thing alone, or have their meaning from RFC 822, by minutes east of UTC. IST is
// that of three countries, and none of it.
var zones = map[string]int{
	"Z": 0, "UT": 0, "UTC": 0, "GMT": 0, "WET": 0, "WEST": 60, "BST": 60,
	"CET": 60, "CEST": 120, "MET": 60, "MEST": 120, "MEZ": 60, "MESZ": 120, "WAT": 60, "CAT": 120, "SAST": 120,
	"EET": 120, "EEST": 180, "MSK": 180, "MSD": 240, "TRT": 180, "EAT": 180, "IRST": 210, "PKT": 300, "NPT": 345,
	"ICT": 420, "WIB": 420, "WITA": 480, "WIT": 540, "HKT": 480, "SGT": 480, "PHT": 480, "AWST": 480, "JST": 540, "KST": 540,
	"ACST": 570, "ACDT": 630, "AEST": 600, "AEDT": 660, "NZST": 720, "NZDT": 780,
	"BRT": -180, "ART": -180, "CLT": -240, "CLST": -180, "COT": -300, "PET": -300, "NST": -210, "NDT": -150, "AST": -240, "ADT": -180,
	"EST": -300, "EDT": -240, "CST": -360, "CDT": -300, "MST": -420, "MDT": -360, "PST": -480, "PDT": -420,
	"AKST": -540, "AKDT": -480, "HST": -600,
}
