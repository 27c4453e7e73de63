package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// TestFold: a table that is too wide goes on below, behind its first column; nothing of it
// is lost, and nothing else is touched.
func TestFold(t *testing.T) {
	text := `umbra, for a while, in a line that is as long as it is and is not touched
  name  state
  a     there

Who had how much
  who          weight  of the above  graphics  waited  now
  card                               49.6ms    57µs
    a          301     39.0 %        19.3ms    30ms    1 on the card, 2 wait
      kernel   100     48.0 %        9.28ms    16.6ms`
	const want = `umbra, for a while, in a line that is as long as it is and is not touched
  name  state
  a     there

Who had how much
  who          weight  of the above
  card
    a          301     39.0 %
      kernel   100     48.0 %
  who          graphics  waited
  card         49.6ms    57µs
    a          19.3ms    30ms
      kernel   9.28ms    16.6ms
  who          now
  card
    a          1 on the card, 2 wait
      kernel`
	lines := fold(strings.Split(text, "\n"), 38)
	require.Equal(t, want, strings.Join(lines, "\n"))
	require.Equal(t, strings.Split(text, "\n"), fold(strings.Split(text, "\n"), 100), "what fits stays")
	for _, l := range lines[4:] {
		require.LessOrEqual(t, utf8.RuneCountInString(l), 38)
	}
	for _, odd := range []string{"", "  ", "  x", "  one-very-long-word-alone", "  a  b\n  c"} {
		require.NotPanics(t, func() { fold(strings.Split(odd, "\n"), 4) })
	}
}
