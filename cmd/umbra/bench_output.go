package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/bench/page"
	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// benchOutput is where a report goes, and what it is compared with.
type benchOutput struct {
	VS   string `name:"vs" placeholder:"FILE" help:"Compare with the report in FILE, the JSON of a run before. What the command line does not say is measured as it was there: --quick, where, which scenarios, set-ups and kernels."`
	JSON bool   `name:"json" help:"Write the report as JSON to standard output, in place of the tables."`
	Out  string `placeholder:"PATH" help:"Write the page there: FILE.html; or the JSON, FILE.json, or the tables, FILE.txt; or all three into a folder. none writes nothing (default: umbra-bench.html and umbra-bench.json; of show: none)."`
}

// before reads the report to compare with, if there is one.
func (c *benchOutput) before() (*report.Report, error) {
	if c.VS == "" {
		return nil, nil
	}
	r, err := readReport(c.VS)
	if err != nil {
		return nil, &config.Error{Where: "--vs", Value: c.VS, Reason: err.Error()}
	}
	return r, nil
}

func readReport(name string) (*report.Report, error) {
	f, err := os.Open(name)
	if path := new(os.PathError); errors.As(err, &path) {
		return nil, path.Err // the caller names the file
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return report.Decode(f)
}

// noFile is the name, of every command's file to write, that writes nothing.
const noFile = "none"

// check refuses an --out that could not be written, before anything is measured.
func (c *benchOutput) check() error {
	if c.Out == noFile || c.Out == "" {
		return nil
	}
	dir := c.Out
	if filepath.Ext(dir) != "" {
		dir = filepath.Dir(dir)
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return &config.Error{Where: "--out", Value: c.Out, Reason: err.Error()}
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return &config.Error{Where: "--out", Value: c.Out, Reason: dir + " is no folder; make it first"}
	}
	if ext := filepath.Ext(c.Out); ext != "" && writers[ext] == nil {
		return &config.Error{Where: "--out", Value: c.Out, Reason: "must end in .html, .json or .txt, or be a folder"}
	}
	return nil
}

// writers of a report by the end of the file's name.
var writers = map[string]func(io.Writer, *report.Report, *report.Comparison) error{
	".html": page.Write,
	".json": func(w io.Writer, r *report.Report, _ *report.Comparison) error { return r.Encode(w) },
	".txt": func(w io.Writer, r *report.Report, c *report.Comparison) error {
		_, err := io.WriteString(w, benchText(r, c))
		return err
	},
}

func benchText(r *report.Report, c *report.Comparison) string {
	text := r.Text()
	if c != nil {
		text += "\n" + c.Text()
	}
	return text
}

// target is a file to write, and the one that a whole run would have written.
type target struct{ name, whole string }

// names are the files to write; those of a run that was ended say so in their names. Of those
// that nobody named, the one that holds the report to compare with stays as it is: it could not
// be compared with again.
func (c *benchOutput) names(usual []string, partial bool) (targets []target) {
	var names []string
	switch {
	case c.Out == noFile:
	case c.Out == "":
		names = usual
	case filepath.Ext(c.Out) != "":
		names = []string{c.Out}
	default:
		for _, ext := range slices.Sorted(maps.Keys(writers)) {
			names = append(names, filepath.Join(c.Out, "bench"+ext))
		}
	}
	for _, whole := range names {
		name := whole
		if partial {
			ext := filepath.Ext(whole)
			name = strings.TrimSuffix(whole, ext) + ".partial" + ext
		}
		if c.Out == "" && sameFile(name, c.VS) {
			continue
		}
		targets = append(targets, target{name, whole})
	}
	return targets
}

// told is what is said of it once it is written.
func (t target) told() string {
	if t.name == t.whole {
		return "wrote " + t.name
	}
	text := fmt.Sprintf("wrote %s, which has what was measured by then", t.name)
	if _, err := os.Stat(t.whole); err == nil {
		text += fmt.Sprintf("; %s stays as it was", t.whole)
	}
	return text
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// write writes the report to files and to standard output.
func (c *benchOutput) write(out output, r, then *report.Report, targets []target) error {
	var compared *report.Comparison
	var refused error
	if then != nil {
		if compared, refused = report.Compare(r, then); refused != nil {
			refused = fmt.Errorf("--vs %s: %w", c.VS, refused)
		}
	}
	// The files come first: what took long to measure is not lost because nobody reads the
	// tables to their end.
	var errs []error
	var told []string
	for _, t := range targets {
		if err := writeReport(t.name, r, compared); err != nil {
			errs = append(errs, err)
			continue
		}
		told = append(told, t.told()+"\n")
	}
	var err error
	if c.JSON {
		err = r.Encode(out.stdout)
	} else {
		_, err = fmt.Fprint(out.stdout, benchText(r, compared))
	}
	errs = append(errs, err)
	fmt.Fprint(out.stderr, strings.Join(told, ""))
	return errors.Join(append(errs, refused)...)
}

func writeReport(name string, r *report.Report, c *report.Comparison) (err error) {
	f, err := createWhole(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.discard()) }()
	if err := writers[filepath.Ext(name)](f, r, c); err != nil {
		return err
	}
	return f.keep()
}
