package measure

import "strings"

// Identity is what an instrument said of itself.
type Identity struct {
	Kind, Model, Serial, Firmware, Address string
}

// and stands between what several instruments that are read as one say.
const and = " + "

// JoinIdentities is the identity of several instruments that are read as one: each
// field of all of them, in their order; empty where all are.
func JoinIdentities(parts []Identity) Identity {
	join := func(f func(Identity) string) string {
		var all []string
		for _, p := range parts {
			all = append(all, strings.ReplaceAll(f(p), and, "+"))
		}
		if strings.Join(all, "") == "" {
			return ""
		}
		return strings.Join(all, and)
	}
	return Identity{
		Kind:     join(func(i Identity) string { return i.Kind }),
		Model:    join(func(i Identity) string { return i.Model }),
		Serial:   join(func(i Identity) string { return i.Serial }),
		Firmware: join(func(i Identity) string { return i.Firmware }),
		Address:  join(func(i Identity) string { return i.Address }),
	}
}

// Parts are the instruments that JoinIdentities joined: itself alone where it is of
// one, or where its fields are not of as many instruments as its kinds.
func (i Identity) Parts() []Identity {
	kinds := strings.Split(i.Kind, and)
	out := make([]Identity, len(kinds))
	for _, f := range []struct {
		joined string
		of     func(*Identity) *string
	}{
		{i.Kind, func(i *Identity) *string { return &i.Kind }},
		{i.Model, func(i *Identity) *string { return &i.Model }},
		{i.Serial, func(i *Identity) *string { return &i.Serial }},
		{i.Firmware, func(i *Identity) *string { return &i.Firmware }},
		{i.Address, func(i *Identity) *string { return &i.Address }},
	} {
		if f.joined == "" {
			continue
		}
		each := strings.Split(f.joined, and)
		if len(each) != len(kinds) {
			return []Identity{i}
		}
		for k := range out {
			*f.of(&out[k]) = each[k]
		}
	}
	return out
}
