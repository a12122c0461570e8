package powersensor3

import "testing"

func FuzzSet(f *testing.F) {
	f.Add("pair0.name", "slot")
	f.Add("sensor7.in_use", "false")
	f.Add("sensor0.sensitivity", "-1e40")
	f.Add("sensor3.", "")
	f.Fuzz(func(t *testing.T, key, value string) {
		var s [Sensors]Sensor
		if err := Set(&s, key, value); err != nil {
			if s != ([Sensors]Sensor{}) {
				t.Errorf("refused with %v, but changed", err)
			}
			return
		}
		for i := range s { // what is accepted is stored as it was said
			var back Sensor
			if back.Unmarshal(s[i].Marshal()); back != s[i] {
				t.Errorf("%q=%q: %+v comes back as %+v", key, value, s[i], back)
			}
		}
	})
}
