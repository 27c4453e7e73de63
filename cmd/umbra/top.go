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
	if isFile && !c.CSV && !c.JSON && isTerminal(f) {
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
		_ = table.Write(topRecord(func(c *topColumn) string { return c.name })) // Flush says
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
	return nil
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
		u := &m.uses[i]
		_ = table.Write(topRecord(func(c *topColumn) string { return c.text(u) })) // Error says
	}
	table.Flush()
	return table.Error()
}

// topColumn is a column of --csv.
type topColumn struct {
	name string
	text func(*gpuUse) string
}

var topColumns = []topColumn{
	{"time", func(u *gpuUse) string { return u.Time.UTC().Format(time.RFC3339Nano) }},
	{"gpu", func(u *gpuUse) string { return u.GPU }},
	{"attached", func(u *gpuUse) string { return fmt.Sprint(u.Attached) }},
	{"weight", func(u *gpuUse) string { return fmt.Sprint(u.Weight) }},
	{"busy_percent", func(u *gpuUse) string { return fmt.Sprintf("%.1f", u.Busy) }},
	{"waiting", func(u *gpuUse) string { return fmt.Sprint(u.Waiting) }},
	{"on_card", func(u *gpuUse) string { return fmt.Sprint(u.OnCard) }},
	{"bytes_per_s", func(u *gpuUse) string { return fmt.Sprintf("%.0f", u.Bytes) }},
	{"traps_per_s", func(u *gpuUse) string { return fmt.Sprintf("%.0f", u.Traps) }},
	{"interrupts_per_s", func(u *gpuUse) string { return fmt.Sprintf("%.0f", u.Interrupts) }},
	{"faults", func(u *gpuUse) string { return fmt.Sprint(u.Faults) }},
}

func topRecord(cell func(*topColumn) string) (out []string) {
	for i := range topColumns {
		out = append(out, cell(&topColumns[i]))
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
	fmt.Fprintf(&b, "%s  by %s; s: another order, up, down: choose (%s), enter: its engines, q: quit\n", topLegend, m.Sort, m.chosen())
	v := tea.NewView(b.String())
	v.AltScreen = true
	return v
}
