package mmio

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzReadTrace(f *testing.F) {
	file := traceFile(f)
	f.Add(file)
	f.Add(file[:HeaderSize])
	f.Add(file[:len(file)-1])
	f.Add([]byte(TraceMagic))
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := ReadTrace(bytes.NewReader(in))
		if err != nil {
			return
		}
		// What is accepted is exactly what would be written for it.
		out := append([]byte(nil), in[:HeaderSize]...)
		for _, r := range got.Records {
			b := make([]byte, RecordSize)
			r.put(b)
			out = append(out, b...)
		}
		require.Equal(t, in, out)
	})
}
