package shim

// Recorder is a Tap that records.
type Recorder struct {
	Recording Recording
	image     *image
}

// NewRecorder records what happens on a machine that is fresh.
func NewRecorder(m *Machine) *Recorder { return &Recorder{image: newImage(m)} }

// next begins a step.
func (r *Recorder) next() *Step {
	r.Recording.Steps = append(r.Recording.Steps, Step{})
	return &r.Recording.Steps[len(r.Recording.Steps)-1]
}

// Alloc implements Tap.
func (r *Recorder) Alloc(b *Buffer) {
	r.image.add(b)
	s := r.next()
	s.Alloc = append(s.Alloc, b.Place)
}

// Free implements Tap.
func (r *Recorder) Free(b *Buffer) {
	r.image.remove(b)
	s := r.next()
	s.Free = append(s.Free, b.VA)
}

// Before implements Tap.
func (r *Recorder) Before(channel int, list []Push) (err error) {
	s := r.next()
	s.Channel, s.Submit = channel, list
	s.Wrote, err = r.image.changes()
	return err
}

// After implements Tap.
func (r *Recorder) After() (err error) {
	s := &r.Recording.Steps[len(r.Recording.Steps)-1]
	s.Expected, err = r.image.changes()
	return err
}
