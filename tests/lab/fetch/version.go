package fetch

import "strings"

// compareVersions orders two Debian package versions (Debian Policy 5.6.12):
// epoch, upstream version, revision; in each, runs of non-digits and runs of
// digits by turns, '~' before everything, even the end.
func compareVersions(a, b string) int {
	ae, av, ar := splitVersion(a)
	be, bv, br := splitVersion(b)
	for _, p := range [][2]string{{ae, be}, {av, bv}, {ar, br}} {
		if c := comparePart(p[0], p[1]); c != 0 {
			return c
		}
	}
	return 0
}

func splitVersion(v string) (epoch, upstream, revision string) {
	epoch, revision = "0", "0"
	if e, rest, ok := strings.Cut(v, ":"); ok {
		epoch, v = e, rest
	}
	if i := strings.LastIndexByte(v, '-'); i >= 0 {
		v, revision = v[:i], v[i+1:]
	}
	return epoch, v, revision
}

func comparePart(a, b string) int {
	for a != "" || b != "" {
		for (a != "" && !isDigit(a[0])) || (b != "" && !isDigit(b[0])) {
			if d := weight(a) - weight(b); d != 0 {
				return d
			}
			a, b = a[1:], b[1:]
		}
		an, bn := digits(a), digits(b)
		a, b = a[len(an):], b[len(bn):]
		an, bn = strings.TrimLeft(an, "0"), strings.TrimLeft(bn, "0")
		if d := len(an) - len(bn); d != 0 {
			return d
		}
		if c := strings.Compare(an, bn); c != 0 {
			return c
		}
	}
	return 0
}

// weight is the rank of a part's first character: '~', end or digit, letters,
// all others.
func weight(s string) int {
	switch {
	case s == "" || isDigit(s[0]):
		return 0
	case s[0] == '~':
		return -1
	case s[0] >= 'a' && s[0] <= 'z', s[0] >= 'A' && s[0] <= 'Z':
		return int(s[0])
	default:
		return int(s[0]) + 256
	}
}

func digits(s string) string {
	i := 0
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	return s[:i]
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
