package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/cmd/trace"
)

type traceCmd struct {
	Record traceRecordCmd `cmd:"" help:"Record what the guests of a running server do."`
	Show   traceShowCmd   `cmd:"" help:"Write a recording as text, with the names of registers and methods."`
	Stats  traceStatsCmd  `cmd:"" help:"Count what is in a recording."`
	Diff   traceDiffCmd   `cmd:"" help:"Name the first difference between two recordings."`
	Export traceExportCmd `cmd:"" help:"Write a recording in the form of another program."`
	Replay traceReplayCmd `cmd:"" help:"Do what a guest did to a fresh software card, and name the first difference."`

	Coverage traceCoverageCmd `cmd:"" help:"Show how much of the registers, methods and instructions a driver touched."`
}

// recording is a file that the command reads.
type recording struct {
	File string `arg:"" placeholder:"FILE" help:"A recording of umbra trace record."`
	GPU  string `name:"gpu" placeholder:"NAME" help:"Look at this GPU alone. Some commands need it for a recording of several."`
}

// read opens the recording for f.
func (r *recording) read(f func(*trace.File) error) error {
	return readRecording(r.File, func(t *trace.File) error {
		if r.GPU != "" {
			if _, err := find(t, r.GPU); err != nil {
				return err
			}
		}
		return f(t)
	})
}

// readOne opens the recording for f, which is about one GPU.
func (r *recording) readOne(f func(*trace.File, int) error) error {
	return r.read(func(t *trace.File) error {
		gpu, err := find(t, r.GPU)
		if err != nil {
			return err
		}
		return f(t, gpu)
	})
}

func readRecording(name string, f func(*trace.File) error) error {
	in, err := os.Open(name)
	if err != nil {
		return badFile(name, err)
	}
	defer in.Close()
	t, err := trace.Open(in, serve.RegistersOf)
	if err != nil {
		return badFile(name, err)
	}
	if err = f(t); err != nil && !errors.As(err, new(*config.Error)) {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return err
}

// find finds a GPU of a recording by the name that the command was given.
func find(f *trace.File, name string) (int, error) {
	gpu, err := f.Find(name)
	if err != nil {
		err = &config.Error{Where: "--gpu", Value: name, Reason: err.Error()}
	}
	return gpu, err
}

type traceRecordCmd struct {
	control
	Name        string        `arg:"" help:"Name of the GPU; with --all the file."`
	File        string        `arg:"" optional:"" help:"The file to write."`
	All         bool          `help:"Record all GPUs."`
	For         time.Duration `placeholder:"TIME" default:"0s" help:"How long, for example 10s; until ^C without it."`
	Pushbuffers bool          `help:"Also record the words of pushbuffers, up to 4096 of each submission."`
}

// Help is the text below the usage.
func (traceRecordCmd) Help() string {
	return "A recording has traps, submissions, the time of engines, what the scheduler decided, interrupts and faults. What a guest does through windows that it maps is not trapped; " +
		"add its GPU with bar-map=none to see all. A guest never waits for a recording: events that find 65536 others before them are lost, and counted."
}

func (c *traceRecordCmd) Run(ctx context.Context, out output) (err error) {
	request, file := api.TraceRequest{GPU: c.Name, For: c.For, Pushbuffers: c.Pushbuffers}, c.File
	switch {
	case c.All && file != "":
		return &config.Error{Where: "--all", Reason: "records all GPUs, so give the file alone: umbra trace record --all " + file}
	case c.All:
		request.GPU, file = "", c.Name
	case file == "":
		return &config.Error{Where: c.Name, Reason: "give the name of a GPU and a file, or --all and a file"}
	}
	to := &lateFile{name: file}
	client, err := c.client()
	if err != nil {
		return err
	}
	err = client.Trace(ctx, request, to)
	if ctx.Err() != nil {
		err = nil // that is how it ends
	}
	if closed := to.close(); err == nil {
		err = closed
	}
	if to.f == nil || errors.As(err, new(*config.Error)) {
		return err
	}
	counted := readRecording(file, func(f *trace.File) error {
		s, err := f.Stats("")
		if err != nil {
			return err
		}
		events := uint64(0)
		for _, n := range s.Kinds {
			events += n
		}
		_, err = fmt.Fprintf(out.stdout, "%s: %s in %.1f s, %d lost\n", file, plural(events, "event", "events"), s.Length.Seconds(), s.Lost)
		return err
	})
	return cmp.Or(err, counted)
}

// lateFile is a file that is made by the first write: a request that is refused leaves what was there.
type lateFile struct {
	name string
	f    *os.File
}

func (l *lateFile) Write(p []byte) (n int, err error) {
	if l.f == nil {
		if l.f, err = os.Create(l.name); err != nil {
			return 0, badFile(l.name, err)
		}
	}
	if n, err = l.f.Write(p); err != nil {
		err = fmt.Errorf("the recording ends here: %w", err)
	}
	return n, err
}

func (l *lateFile) close() error {
	if l.f == nil {
		return nil
	}
	return l.f.Close()
}

type traceShowCmd struct {
	recording
	Mmiotrace bool `help:"Write the text form of the kernel's mmiotrace, which envytools' demmio reads. The addresses of BARs are made up."`
}

func (c *traceShowCmd) Run(out output) error {
	w := bufio.NewWriter(out.stdout)
	var err error
	if c.Mmiotrace {
		err = c.readOne(func(f *trace.File, gpu int) error { return f.Mmiotrace(w, gpu) })
	} else {
		err = c.read(func(f *trace.File) error { return f.Show(w, c.GPU) })
	}
	return cmp.Or(err, w.Flush())
}

type traceStatsCmd struct {
	recording
}

func (c *traceStatsCmd) Run(out output) error {
	return c.read(func(f *trace.File) error {
		s, err := f.Stats(c.GPU)
		if err != nil {
			return err
		}
		return s.Write(out.stdout)
	})
}

type traceDiffCmd struct {
	A    string `arg:"" placeholder:"A" help:"A recording."`
	B    string `arg:"" placeholder:"B" help:"Another one, of the same chip."`
	GPUA string `name:"gpu-a" placeholder:"NAME" help:"The GPU in A, of several."`
	GPUB string `name:"gpu-b" placeholder:"NAME" help:"The GPU in B, of several."`
}

// Help is the text below the usage.
func (traceDiffCmd) Help() string {
	return "It compares accesses with their values. Of reads of one register in a row only the last counts, and no values of timers. The exit code is 1 if the recordings differ."
}

func (c *traceDiffCmd) Run(out output) error {
	return readRecording(c.A, func(a *trace.File) error {
		return readRecording(c.B, func(b *trace.File) error {
			x, err := find(a, c.GPUA)
			if err != nil {
				return err
			}
			y, err := find(b, c.GPUB)
			if err != nil {
				return err
			}
			differ, err := trace.Diff(out.stdout, a, b, x, y)
			if err == nil && differ {
				err = ended(exitFailed)
			}
			return err
		})
	})
}

type traceExportCmd struct {
	recording
	Perfetto string `required:"" placeholder:"FILE" help:"Write the JSON form of Chrome's traces, which ui.perfetto.dev opens; - for standard output."`
}

func (c *traceExportCmd) Run(out output) error {
	return c.read(func(f *trace.File) (err error) {
		to := out.stdout
		if c.Perfetto != "-" {
			file, failed := os.Create(c.Perfetto)
			if failed != nil {
				return badFile(c.Perfetto, failed)
			}
			defer func() { err = errors.Join(err, file.Close()) }()
			to = file
		}
		w := bufio.NewWriter(to)
		return errors.Join(f.Perfetto(w, c.GPU), w.Flush())
	})
}

type traceReplayCmd struct {
	recording
	Chip string `placeholder:"NAME" help:"Refuse a recording of another chip than this: gf100 or gh100."`
}

// Help is the text below the usage.
func (traceReplayCmd) Help() string {
	return "The recording must begin before the guest attaches, and its GPU needs bar-map=none. The card has nothing of the guest's own memory, so work that uses it faults. " +
		"The exit code is 1 at a difference."
}

func (c *traceReplayCmd) Run(out output) error {
	return c.readOne(func(f *trace.File, gpu int) error {
		if has := f.GPUs[gpu].Chip; c.Chip != "" && c.Chip != has {
			return &config.Error{Where: "--chip", Value: c.Chip, Reason: "the recording is of a " + has + "; leave the flag out, or give a recording of a " + c.Chip}
		}
		d, end, err := serve.Fresh(&f.Header, gpu)
		if err != nil {
			return err
		}
		r, err := f.Replay(gpu, d)
		if err = errors.Join(err, end()); err != nil {
			return err
		}
		if r.Difference != "" {
			fmt.Fprintf(out.stdout, "The first difference: %s\n", r.Difference)
			return ended(exitFailed)
		}
		_, err = fmt.Fprintf(out.stdout, "%s, as recorded.\n", plural(uint64(r.Accesses), "access", "accesses"))
		return err
	})
}

type traceCoverageCmd struct {
	recording
	Missing bool `help:"Also name what the driver did not touch."`
}

// Help is the text below the usage.
func (traceCoverageCmd) Help() string {
	return "Methods and instructions are in recordings with --pushbuffers alone. An array of registers or methods counts as one."
}

func (c *traceCoverageCmd) Run(out output) error {
	return c.readOne(func(f *trace.File, gpu int) error {
		return f.Coverage(out.stdout, gpu, c.Missing)
	})
}
