package agent

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

// maxRecord is more than the kernel ever gives for one record.
const maxRecord = 16 << 10

// defaultRecords bounds a reply for which no limit was asked.
const defaultRecords = 4096

// Kmsg returns records of the kernel log.
func (s *System) Kmsg(a proto.KmsgArgs) (proto.KmsgResult, error) {
	res := proto.KmsgResult{Records: []proto.KmsgRecord{}}
	limit := a.Limit
	if limit <= 0 {
		limit = defaultRecords
	}
	err := s.records(func(r proto.KmsgRecord) bool {
		if a.AfterSeq != nil && r.Seq <= *a.AfterSeq {
			return true
		}
		if len(res.Records) == limit {
			res.More = true
			return false
		}
		res.Records = append(res.Records, r)
		return true
	})
	return res, err
}

// Mark returns the place of the last record, after leaving a line of its own if asked.
func (s *System) Mark(a proto.MarkArgs) (proto.MarkResult, error) {
	if a.Text != "" {
		f, err := os.OpenFile(s.path("dev/kmsg"), os.O_WRONLY, 0)
		if err != nil {
			return proto.MarkResult{}, err
		}
		_, err = f.WriteString("<14>lab: " + a.Text)
		if err = errors.Join(err, f.Close()); err != nil {
			return proto.MarkResult{}, err
		}
	}
	var res proto.MarkResult
	err := s.records(func(r proto.KmsgRecord) bool {
		res = proto.MarkResult{Seq: r.Seq}
		return true
	})
	return res, err
}

// records hands the log to f, oldest first, until f says no. Each read of /dev/kmsg is one
// record; EPIPE tells that some were overwritten meanwhile.
func (s *System) records(f func(proto.KmsgRecord) bool) error {
	fd, err := unix.Open(s.path("dev/kmsg"), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("/dev/kmsg: %w", err)
	}
	defer unix.Close(fd)
	buf := make([]byte, maxRecord)
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EAGAIN), err == nil && n == 0:
			return nil
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("/dev/kmsg: %w", err)
		}
		r, err := parseRecord(string(buf[:n]))
		if err != nil {
			return err
		}
		if !f(r) {
			return nil
		}
	}
}

// parseRecord reads "level,sequence,microseconds,flags[,...];text\n key=value...\n".
func parseRecord(text string) (r proto.KmsgRecord, err error) {
	head, body, ok := strings.Cut(text, ";")
	fields := strings.Split(head, ",")
	if !ok || len(fields) < 3 {
		return r, fmt.Errorf("kernel log record %q: no prefix", text)
	}
	var n [3]uint64
	for i := range n {
		if n[i], err = strconv.ParseUint(fields[i], 10, 64); err != nil {
			return r, fmt.Errorf("kernel log record %q: %w", text, err)
		}
	}
	r.Level, r.Facility, r.Seq, r.USec = int(n[0]&7), int(n[0]>>3), n[1], n[2]
	r.Text, _, _ = strings.Cut(body, "\n")
	return r, nil
}
