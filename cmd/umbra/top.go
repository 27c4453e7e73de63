package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// topCmd shows what guests do now, on a terminal until q is pressed, elsewhere as lines.
type topCmd struct {
	server
	CSV      bool          `name:"csv" help:"Write comma-separated values, a line for each GPU and look."`
	Interval time.Duration `default:"1s" help:"Time between two looks, 100ms at least."`
	Looks    int           `placeholder:"N" help:"End after so many looks; 0: never."`
	Sort     string        `default:"busy" enum:"busy,name,traps,faults" help:"The order of GPUs: busy, name, traps or faults."`
}

func (c *topCmd) Run(ctx context.Context, out output) error {
	if c.Interval < 100*time.Millisecond {
		return &config.Error{Where: "--interval", Value: c.Interval.String(), Reason: "must be 100ms at least"}
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	m := &topModel{topCmd: c, ctx: ctx, client: client}
	if err := m.look(); err != nil {
		return err
	}
	f, isFile := out.stdout.(*os.File)
	if isFile && !c.CSV && !c.JSON && isTerminal(f) && isTerminal(os.Stdin) {
		_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithOutput(f)).Run()
		if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
			err = nil
		}
		return errors.Join(err, m.err)
	}
	return m.lines(out.stdout)
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// topModel is the state of the display.
type topModel struct {
	*topCmd
	ctx    context.Context
	client *api.Client
	last   api.Status
	uses   []gpuUse
	looks  int // after the first
	at     int // the row that is chosen
	detail string
	err    error // that ended it
}

// topPatience is how long the server may take to answer: keys wait meanwhile.
const topPatience = 5 * time.Second

// look asks the server.
func (m *topModel) look() error {
	ctx, cancel := context.WithTimeoutCause(m.ctx, topPatience, errors.New("the server does not answer"))
	defer cancel()
	now, err := m.client.Status(ctx)
	if err != nil {
		return err
	}
	if m.last.PID != 0 {
		m.uses = usesOf(&m.last, &now, time.Now())
		sortUses(m.uses, m.Sort)
		m.looks++
	}
	m.last = now
	return nil
}

func (m *topModel) done() bool { return m.Looks > 0 && m.looks >= m.Looks }

// lines writes each look until the command ends.
func (m *topModel) lines(out io.Writer) error {
	tick := time.NewTicker(m.Interval)
	defer tick.Stop()
	table := csv.NewWriter(out)
	if m.CSV {
		_ = table.Write(csvRecord(new(gpuUse), true)) // Flush says
	}
	for !m.done() {
		select {
		case <-m.ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := m.look(); err != nil {
			return err
		}
		if err := m.write(out, table); err != nil {
			return err
		}
	}
	if m.CSV || m.JSON {
		return nil
	}
	_, err := io.WriteString(out, "\n"+topLegend)
	return err
}

func (m *topModel) write(out io.Writer, table *csv.Writer) error {
	if m.JSON {
		return json.NewEncoder(out).Encode(m.uses)
	}
	if !m.CSV {
		var b strings.Builder
		usesText(&b, m.uses, "")
		_, err := io.WriteString(out, b.String())
		return err
	}
	for i := range m.uses {
		_ = table.Write(csvRecord(&m.uses[i], false)) // Error says
	}
	table.Flush()
	return table.Error()
}

// csvRecord has the fields of a look at a GPU but its lists: their names in JSON, or their values.
func csvRecord(u *gpuUse, names bool) (out []string) {
	for i, v := 0, reflect.ValueOf(u).Elem(); i < v.NumField(); i++ {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		text := ""
		switch x := v.Field(i).Interface().(type) {
		case []engineUse:
			continue
		case time.Time:
			text = x.UTC().Format(time.RFC3339Nano)
		case time.Duration:
			text = fmt.Sprint(x.Nanoseconds())
		case float64:
			text = fmt.Sprintf("%.1f", x)
		default:
			text = fmt.Sprint(x)
		}
		if names {
			text = name
		}
		out = append(out, text)
	}
	return out
}

// topTick asks for the next look.
type topTick struct{}

func (m *topModel) tick() tea.Cmd {
	return tea.Tick(m.Interval, func(time.Time) tea.Msg { return topTick{} })
}

// Init implements tea.Model.
func (m *topModel) Init() tea.Cmd { return m.tick() }

// Update implements tea.Model.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case topTick:
		if m.err = m.look(); m.err != nil || m.done() {
			return m, tea.Quit
		}
		return m, m.tick()
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	}
	return m, nil
}

func (m *topModel) key(key string) tea.Cmd {
	switch key {
	case "q", "esc", "ctrl+c":
		return tea.Quit
	case "up", "k":
		m.at--
	case "down", "j":
		m.at++
	case "s":
		orders := slices.Sorted(maps.Keys(topOrders))
		m.Sort = orders[(slices.Index(orders, m.Sort)+1)%len(orders)]
		sortUses(m.uses, m.Sort)
	case "enter":
		if m.chosen() == m.detail {
			m.detail = ""
		} else {
			m.detail = m.chosen()
		}
	}
	m.at = min(max(m.at, 0), max(len(m.uses)-1, 0))
	return nil
}

// chosen is the GPU of the row that is chosen.
func (m *topModel) chosen() string {
	if m.at < len(m.uses) {
		return m.uses[m.at].GPU
	}
	return ""
}

// View implements tea.Model.
func (m *topModel) View() tea.View {
	var b strings.Builder
	c := &m.last.Card
	fmt.Fprintf(&b, "umbra %s, process %d; card: %s, %v of VRAM, %v free\n\n", m.last.Version, m.last.PID, c.Kind, config.Size(c.VRAM), config.Size(c.VRAMFree))
	usesText(&b, m.uses, m.detail)
	if len(m.uses) == 0 {
		b.WriteString("  the first look takes " + m.Interval.String() + "; a server without GPUs has no rows\n")
	}
	fmt.Fprintf(&b, "\n%s  by %s; s: another order, up, down: choose (%s), enter: its engines, q: quit\n", topLegend, m.Sort, m.chosen())
	v := tea.NewView(b.String())
	v.AltScreen = true
	return v
}
