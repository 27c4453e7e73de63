package shim

import (
	"compress/gzip"
	"encoding/gob"
	"fmt"
	"io"
)

// RecordingVersion is the version of the format. Recordings of others cannot be read.
const RecordingVersion = 1

// Recording is what a program did with a card that was fresh.
type Recording struct {
	Version int
	Program string // what was run, for people
	Mesa    string // version of its package
	Steps   []Step
}

// Step is one of: buffers that came, buffers that went, a submission.
type Step struct {
	Alloc []Place
	Free  []uint64 // by address

	Submit  []Push
	Channel int
	// Wrote is what the program changed in memory since the last submission, and Expected
	// what the card changed in this one. Nothing else changed.
	Wrote, Expected []Bytes
	// Failed says why the card did not complete the submission; then it is the last one.
	Failed string
}

// Bytes are the contents of memory at an address.
type Bytes struct {
	VA   uint64
	Data []byte
}

// Write stores a recording.
func (r *Recording) Write(w io.Writer) error {
	r.Version = RecordingVersion
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := gob.NewEncoder(z).Encode(r); err != nil {
		return err
	}
	return z.Close()
}

// ReadRecording reads a recording.
func ReadRecording(from io.Reader) (*Recording, error) {
	z, err := gzip.NewReader(from)
	if err != nil {
		return nil, fmt.Errorf("not a recording: %w", err)
	}
	r := new(Recording)
	if err := gob.NewDecoder(z).Decode(r); err != nil {
		return nil, fmt.Errorf("not a recording: %w", err)
	}
	if r.Version != RecordingVersion {
		return nil, fmt.Errorf("recording of version %d: want %d; record it again", r.Version, RecordingVersion)
	}
	return r, nil
}
