package shadowpt

// ForgetLoose makes the tracker forget which pages change unseen.
func (t *Tracker) ForgetLoose() { t.loose.take(nil) }
