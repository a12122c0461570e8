package relay_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/cluster"
	"github.com/wattmark/wattmark/store/relay"
)

// guests are who is let in, by their tokens, which are their names.
var guests = map[string]cluster.Right{
	"vic": cluster.Reads, "ada": cluster.Publishes, "eve": cluster.Publishes, "store": cluster.Takes, "root": cluster.Runs,
}

// asking is a node that speaks TLS and asks who calls.
type asking struct {
	t     *testing.T
	node  *cluster.Node
	roots *x509.CertPool
}

func ask(t *testing.T, more ...func(*cluster.Config)) *asking {
	t.Helper()
	cert, roots := certificate(t)
	cfg := cluster.Config{
		Name: "n1", Dir: t.TempDir(), Listen: "127.0.0.1:0", Sync: time.Minute,
		Streams: relay.StreamOptions{Partitions: 1, Replicas: 1, Duplicates: time.Minute},
		Access: &cluster.Access{
			Clients: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13},
			Admit: func(_ *tls.ConnectionState, token string) (cluster.Guest, error) {
				right, known := guests[token]
				if !known {
					return cluster.Guest{}, errors.New("unknown token")
				}
				return cluster.Guest{Name: token, Right: right, Valid: func() error { return nil }}, nil
			},
		},
	}
	for _, f := range more {
		f(&cfg)
	}
	n, err := cluster.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	if err := n.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &asking{t, n, roots}
}

// TLS to nodes without it, as by a setting for hosts, is refused with the way to find and to undo that setting.
func TestTLSToAPlainCluster(t *testing.T) {
	a := ask(t, func(c *cluster.Config) { c.Access = nil })
	_, err := relay.Dial(t.Context(), relay.Options{Servers: a.node.Address(), TLS: &tls.Config{RootCAs: a.roots}})
	if !errors.Is(err, relay.ErrRefused) || !strings.Contains(err.Error(), "wattmark config says where") {
		t.Error(err)
	}
}

func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

// as is a bare connection, as an attacker makes it.
func (a *asking) as(who string) *nats.Conn {
	a.t.Helper()
	nc, err := nats.Connect("tls://"+a.node.Address(), nats.Token(who), nats.Secure(&tls.Config{RootCAs: a.roots}), nats.TLSHandshakeFirst(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(nc.Close)
	return nc
}

func (a *asking) dial(who string) *relay.Bus {
	a.t.Helper()
	b, err := relay.Dial(a.t.Context(), relay.Options{Servers: "tls://" + a.node.Address(), Token: who, TLS: &tls.Config{RootCAs: a.roots}})
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(b.Close)
	return b
}

// subject is one that a user's message may have.
func subject(user, kind string) string {
	by := "_"
	if user != "" {
		by = fmt.Sprintf("%x", user)
	}
	return "wattmark.00." + by + ".0123456789abcdef0123456789abcdef.0123456789abcdef0123456789abcdef." + kind
}

// stream is what the stream holds, as root sees it.
func (a *asking) stream(root *nats.Conn) *jetstream.StreamInfo {
	a.t.Helper()
	js, err := jetstream.New(root)
	if err != nil {
		a.t.Fatal(err)
	}
	s, err := js.Stream(a.t.Context(), relay.StreamName(0))
	if err != nil {
		a.t.Fatalf("the stream: %v", err)
	}
	i, err := s.Info(a.t.Context(), jetstream.WithSubjectFilter(">"))
	if err != nil {
		a.t.Fatal(err)
	}
	return i
}

// request sends a request of which the answer is to go to a subject.
func request(t *testing.T, nc *nats.Conn, to, reply, content string) {
	t.Helper()
	if err := nc.PublishRequest(to, reply, []byte(content)); err != nil {
		t.Fatal(err)
	}
}

// What the server answers goes to who has asked, whatever subject the answer is wanted at: not
// into the streams, not to the server itself, and not to others.
func TestAnswersGoToWhoAsksAlone(t *testing.T) {
	t.Parallel()
	a := ask(t)
	root := a.as("root")
	for range 3 {
		if _, err := root.Request(subject("", "end"), []byte("poison"), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	requests := map[string]string{
		"$JS.API.INFO": "", "$JS.API.STREAM.INFO.WATTMARK-00": "", "$JS.API.CONSUMER.LIST.WATTMARK-00": "", "$JS.API.CONSUMER.NAMES.WATTMARK-00": "",
		"$JS.API.STREAM.MSG.GET.WATTMARK-00": `{"seq":1}`, "$JS.API.DIRECT.GET.WATTMARK-00": `{"seq":1}`,
		"$JS.API.CONSUMER.INFO.WATTMARK-00.lab": "", "$SYS.REQ.USER.INFO": "",
	}
	// An answer that says that there is none has no content, as these want it.
	empty := map[string]string{"$JS.API.DIRECT.GET.WATTMARK-00": `{"seq":99}`}
	stolen := make(chan *nats.Msg, 1000)
	ada := a.as("ada")
	if _, err := ada.ChanSubscribe("_INBOX.ada", stolen); err != nil {
		t.Fatal(err)
	}
	if err := ada.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"vic", "eve", "store"} {
		nc := a.as(who)
		before := a.stream(root)
		replies := []string{"_INBOX.ada", "$JS.API.STREAM.DELETE.WATTMARK-00", "$JS.API.CONSUMER.DELETE.WATTMARK-00.lab", "$JS.API.STREAM.CREATE.EVIL"}
		if who != "store" { // which may publish and purge
			replies = append(replies, subject("", "end"), subject("ada", "end"), subject("ada", "aside"), "$JS.API.STREAM.PURGE.WATTMARK-00")
		}
		if who == "eve" { // an acknowledgement is an answer too
			own := subject("eve", "rest")
			for _, r := range replies {
				request(t, nc, own, r, "hers")
			}
			before.State.Msgs += uint64(len(replies))
		}
		for _, list := range []map[string]string{requests, empty} {
			for to, content := range list {
				for _, r := range replies {
					request(t, nc, to, r, content)
				}
			}
		}
		for to, content := range requests { // what was asked before has been answered then
			m, err := nc.Request(to, []byte(content), time.Minute)
			if err != nil || len(m.Data) == 0 {
				t.Errorf("%s: %s: %v", who, to, err)
			}
		}
		after := a.stream(root)
		if after.State.Msgs != before.State.Msgs || after.State.Deleted != nil || !after.Created.Equal(before.Created) {
			t.Errorf("%s: the stream had %+v\nand has %+v", who, before.State, after.State)
		}
	}
	if len(stolen) > 0 {
		t.Errorf("ada was sent %d answers to others: %q", len(stolen), (<-stolen).Data)
	}
}

// Each role sends what it may, and is refused all else.
func TestRolesSendWhatTheyMay(t *testing.T) {
	t.Parallel()
	a := ask(t)
	root := a.as("root")
	if _, err := root.Request("$JS.API.CONSUMER.DURABLE.CREATE.WATTMARK-00.lab", []byte(`{"stream_name":"WATTMARK-00","config":{"durable_name":"lab","ack_policy":"explicit"}}`), time.Minute); err != nil {
		t.Fatal(err)
	}
	all := []string{
		subject("", "end"), subject("ada", "chunk"), subject("ada", "index"), subject("ada", "rest"), subject("ada", "end"), subject("ada", "aside"), subject("eve", "end"),
		"wattmark.00.x.y.end", "$JS.API.STREAM.PURGE.WATTMARK-00", "$JS.API.CONSUMER.CREATE.WATTMARK-00.x", "$JS.API.CONSUMER.MSG.NEXT.WATTMARK-00.lab",
		"$JS.ACK.WATTMARK-00.lab.1.1.1.1.1", "$JS.API.STREAM.DELETE.WATTMARK-00", "$JS.API.STREAM.CREATE.X", "$JS.API.STREAM.UPDATE.WATTMARK-00", "$JS.API.STREAM.MSG.DELETE.WATTMARK-00",
		"$JS.API.CONSUMER.DELETE.WATTMARK-00.lab", "$JS.API.STREAM.SNAPSHOT.WATTMARK-00", "$JS.API.META.LEADER.STEPDOWN", "$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT.PING.CONNZ", "_INBOX.x", "x",
	}
	measures := []string{subject("ada", "chunk"), subject("ada", "index"), subject("ada", "rest"), subject("ada", "end")}
	takes := append([]string{
		subject("", "end"), subject("ada", "aside"), subject("eve", "end"), "wattmark.00.x.y.end", "$JS.API.STREAM.PURGE.WATTMARK-00",
		"$JS.API.CONSUMER.CREATE.WATTMARK-00.x", "$JS.API.CONSUMER.MSG.NEXT.WATTMARK-00.lab", "$JS.ACK.WATTMARK-00.lab.1.1.1.1.1",
	}, measures...)
	for who, may := range map[string][]string{"vic": nil, "ada": measures, "store": takes} {
		nc := a.as(who)
		for _, s := range all {
			if err := nc.Publish(s, []byte("{")); err != nil {
				t.Fatal(err)
			}
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
			if err := nc.LastError(); (err == nil || !strings.Contains(err.Error(), s)) != slices.Contains(may, s) {
				t.Errorf("%s: %s: %v", who, s, err)
			}
		}
		for _, s := range []string{">", "wattmark.>", "$JS.>", "$SYS.>", "_R_.>", "*.*"} {
			sub, err := nc.SubscribeSync(s)
			if err != nil {
				t.Fatal(err)
			}
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
			if err := nc.LastError(); err == nil || !strings.Contains(err.Error(), `Subscription to "`+s) {
				t.Errorf("%s may listen to %s: %v", who, s, err)
			}
			_ = sub.Unsubscribe()
		}
	}
}

// A user who has too much in the streams publishes no more until it is taken; others do.
func TestUsersHaveALimit(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	a := ask(t, func(c *cluster.Config) { c.MaxUser = 3 << 20 })
	root, eve, ada := a.as("root"), a.as("eve"), a.as("ada")
	n, big := 0, make([]byte, 256<<10)
	for ; ; n++ { // until the node lets her not
		if n > 1000 {
			t.Fatalf("eve has published %d messages", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, _ = eve.RequestWithContext(ctx, fmt.Sprintf("wattmark.00.%x.s%d.k.rest", "eve", n), big) // it may be late
		cancel()
		if err := eve.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
			break
		}
	}
	if n < 12 {
		t.Errorf("eve was refused after %d messages of 256 KiB, may have 3 MiB", n)
	}
	if _, err := ada.Request(subject("ada", "rest"), big, time.Minute); err != nil {
		t.Errorf("ada: %v", err)
	}
	if _, err := eve.Request("$JS.API.STREAM.INFO.WATTMARK-00", nil, time.Minute); err != nil {
		t.Errorf("eve cannot read any more: %v", err)
	}
	if _, err := root.Request("$JS.API.STREAM.PURGE.WATTMARK-00", []byte(`{"filter":"wattmark.00.>"}`), time.Minute); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ { // until she may again
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := eve.RequestWithContext(ctx, subject("eve", "rest"), []byte("more"))
		cancel()
		if err == nil {
			break
		} else if n > 100 {
			t.Fatalf("there is room, and eve may not publish: %v", err)
		}
	}
}

// A store's consumer is asked for what it has, and sends nothing anywhere by itself.
func TestConsumersSendNothing(t *testing.T) {
	t.Parallel()
	a := ask(t)
	root, nc := a.as("root"), a.as("store")
	if _, err := root.Request(subject("", "end"), nil, time.Minute); err != nil { // without content, as a request to delete is
		t.Fatal(err)
	}
	for to, config := range map[string]string{
		"$JS.API.CONSUMER.CREATE.WATTMARK-00.x":   `{"name":"x","deliver_subject":"$JS.API.STREAM.DELETE.WATTMARK-00","ack_policy":"none"}`,
		"$JS.API.CONSUMER.CREATE.WATTMARK-00.lab": `{"durable_name":"lab","name":"lab","Deliver_Subject":"wattmark.01._.x.y.end","ack_policy":"explicit"}`,
		"$JS.API.CONSUMER.CREATE.WATTMARK-00":     `{"deliver_subject":"_INBOX.ada","ack_policy":"none"}`,
	} {
		m, err := nc.Request(to, []byte(`{"stream_name":"WATTMARK-00","config":`+config+`}`), time.Minute)
		if err != nil || strings.Contains(strings.ToLower(string(m.Data)), "deliver_subject") || !strings.Contains(to, "lab") && !strings.Contains(string(m.Data), `"error"`) {
			t.Errorf("%s: %s: %v, %v", to, config, m, err)
		}
	}
	a.stream(root)
	if b := a.dial("store"); b.Partitions() != 1 {
		t.Error("the stream is gone")
	}
}

// measured adds a task of a user to a database.
func measured(t *testing.T, db *store.DB, user string) store.TaskID {
	t.Helper()
	id, err := db.BeginTask(t.Context(), store.NewTask{Name: "gemm", User: user, Launched: time.Unix(1e9, 0), Monitor: "lab:7551", CaptureID: "c-" + user})
	if err == nil {
		err = db.PutHeader(t.Context(), id, store.Header{Bench: "desk", Setup: measure.Setup{
			Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 10}, Channels: []measure.Channel{{Name: "p", Unit: measure.UnitWatt, Gain: 1e-3}},
			Rails: []measure.Rail{{Name: "aux_12v", Role: measure.RolePSU, Wiring: measure.WiringPower, Y: -1}},
		}, CalibrationID: "c1", Started: time.Unix(1e9, 0)})
	}
	e, failed := chunk.NewEncoder(measure.Timebase{TickHz: 1e6, TicksPerScan: 10}, 1, 100)
	if err = errors.Join(err, failed); err == nil {
		_, err = e.Append(&measure.Block{Counts: [][]measure.Count{make([]measure.Count, 100)}})
	}
	if err == nil {
		err = db.AppendChunks(t.Context(), id, []*chunk.Chunk{e.Flush(0)}, nil)
	}
	if err == nil {
		err = db.Finish(t.Context(), id, store.Outcome{State: store.Incomplete, Reason: "it stopped"})
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// take runs a store until it has so many tasks, and returns whose they are.
func take(t *testing.T, bus *relay.Bus, to *store.DB, tasks int) (users []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	taken := make(chan relay.Taken, 16)
	c := &relay.Consumer{Bus: bus, DB: to, Name: "lab", Taken: func(x relay.Taken) { taken <- x }}
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	for range tasks {
		users = append(users, (<-taken).User)
	}
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	return users
}

// A user publishes the own tasks alone; who publishes for others publishes all.
func TestUsersPublishTheirOwn(t *testing.T) {
	t.Parallel()
	a := ask(t)
	host, there := open(t, "host.db"), open(t, "there.db")
	adas, bobs := measured(t, host, "ada"), measured(t, host, "bob")
	publish := func(who string, id store.TaskID) error {
		_, err := (&relay.Publisher{DB: host, Bus: a.dial(who)}).Replicate(t.Context(), id)
		return err
	}
	if err := publish("vic", adas); !errors.Is(err, relay.ErrReader) {
		t.Errorf("a viewer publishes: %v", err)
	}
	if err := publish("eve", adas); !errors.Is(err, relay.ErrNotYours) || !strings.Contains(err.Error(), "operator") {
		t.Errorf("eve publishes ada's: %v", err)
	}
	x, err := host.Task(t.Context(), adas)
	if err != nil {
		t.Fatal(err)
	}
	id := relay.IdentityOf(&x)
	forged, err := json.Marshal(relay.End{Format: 2, Key: id.Key(), Identity: id, Rest: []uint64{1}})
	if err != nil {
		t.Fatal(err)
	}
	eve := a.as("eve")
	for _, source := range []relay.Key{id.Source(), "0123456789abcdef0123456789abcdef"} {
		if _, err := eve.Request(fmt.Sprintf("wattmark.00.%x.%s.%s.end", "eve", source, id.Key()), forged, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	for who, id := range map[string]store.TaskID{"ada": adas, "store": bobs} {
		if err := publish(who, id); err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
	bus := a.dial("store")
	got := take(t, bus, there, 2)
	slices.Sort(got)
	if !slices.Equal(got, []string{"ada", "bob"}) {
		t.Errorf("tasks of %v were stored", got)
	}
	if n, err := bus.Free(t.Context(), 0, 0); n != 2 || err != nil { // what is set aside stays
		t.Errorf("freed %d tasks, %v", n, err)
	}
	list, err := a.dial("vic").Asides(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, x := range list {
		if x.User != "eve" || !strings.Contains(x.Why, "in the name of ada") && !strings.Contains(x.Why, "another source") {
			t.Errorf("%+v", x)
		}
	}
}

// Another user's task that names a capture neither claims it from its monitor, nor has its
// samples removed; the task of who took the bench does both.
func TestOthersClaimNoCapture(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	a := ask(t)
	host, eves, there := open(t, "host.db"), open(t, "eves.db"), open(t, "there.db")
	id := measured(t, host, "ada")
	x, err := host.Task(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := eves.BeginTask(t.Context(), store.NewTask{Name: "gemm", User: "eve", Launched: time.Unix(1e9, 0), CaptureID: x.CaptureID})
	if err == nil {
		err = eves.PutHeader(t.Context(), forged, x.Header)
	}
	if err == nil {
		err = eves.Finish(t.Context(), forged, store.Outcome{State: store.Incomplete, Reason: "hers"})
	}
	if err != nil {
		t.Fatal(err)
	}
	monitor := a.dial("store") // a monitor publishes for all, as a store does
	c, err := (&relay.Publisher{Bus: monitor}).Capture(t.Context(), relay.CaptureHeader{Header: x.Header, Task: store.NewTask{
		Name: x.Name, User: "ada", CaptureID: x.CaptureID, Launched: x.Started,
	}})
	if err != nil {
		t.Fatal(err)
	}
	for k, err := range host.Chunks(t.Context(), id, 0) {
		if err == nil {
			err = c.Chunk(k, chunk.AppendPayload(nil, k))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if again, err := c.Published(t.Context()); again || err != nil {
		t.Fatal(again, err)
	}
	free := func() uint64 {
		t.Helper()
		if _, err := monitor.Free(t.Context(), 0, time.Hour); err != nil {
			t.Fatal(err)
		}
		return monitor.Status(t.Context())[0].Messages
	}
	step := func(who string, db *store.DB, id store.TaskID) (claimed bool, left uint64) {
		t.Helper()
		if _, err := (&relay.Publisher{DB: db, Bus: a.dial(who)}).Replicate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		claimed, err := c.Claimed(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		take(t, monitor, there, 1)
		return claimed, free()
	}
	samples := monitor.Status(t.Context())[0].Messages
	if claimed, left := step("eve", eves, forged); claimed || left != samples {
		t.Errorf("by eve's task: claimed %v, %d messages of %d are left", claimed, left, samples)
	}
	if claimed, left := step("ada", host, id); !claimed || left != 0 {
		t.Errorf("by ada's task: claimed %v, %d messages are left", claimed, left)
	}
}
