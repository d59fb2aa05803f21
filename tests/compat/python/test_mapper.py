"""A small application of cqlengine, the object mapper of both Python drivers: a library that lends books.

Models with user types, collections, counters, static columns; saving, updating, deleting, conditional writes, batches,
queries with filters, order, limits and pages; tables made, altered and compared from the models.
"""

import os
import uuid
from datetime import datetime

import pytest
from cassandra.cqlengine import ValidationError, columns, connection, management
from cassandra.cqlengine.functions import MaxTimeUUID, MinTimeUUID, Token
from cassandra.cqlengine.models import Model
from cassandra.cqlengine.query import BatchQuery, ContextQuery, DoesNotExist, LWTException
from cassandra.cqlengine.usertype import UserType
from cassandra.query import dict_factory

from conftest import make_cluster

KEYSPACE = f"mapper_{uuid.uuid4().hex[:12]}"


class Address(UserType):
    street = columns.Text()
    number = columns.Integer()
    floors = columns.List(columns.Integer)


class Book(Model):
    __keyspace__ = KEYSPACE
    isbn = columns.Text(primary_key=True)
    title = columns.Text(required=True)
    authors = columns.Set(columns.Text)
    pages = columns.Integer(default=0)
    chapters = columns.List(columns.Text)
    prices = columns.Map(columns.Text, columns.Decimal)
    location = columns.UserDefinedType(Address)
    published = columns.Date()


class Loan(Model):
    __keyspace__ = KEYSPACE
    __options__ = {"comment": "what readers have", "gc_grace_seconds": 3600}
    reader = columns.Integer(partition_key=True)
    at = columns.TimeUUID(primary_key=True, clustering_order="DESC", default=uuid.uuid1)
    name = columns.Text(static=True)
    isbn = columns.Text()
    returned = columns.Boolean(default=False)


class Reads(Model):
    __keyspace__ = KEYSPACE
    isbn = columns.Text(primary_key=True)
    count = columns.Counter()
    other = columns.Counter()


class Grown(Model):
    __keyspace__ = KEYSPACE
    __table_name__ = "reads_of_days"
    day = columns.Integer(primary_key=True)
    note = columns.Text()


class GrownLater(Model):
    __keyspace__ = KEYSPACE
    __table_name__ = "reads_of_days"
    day = columns.Integer(primary_key=True)
    note = columns.Text()
    more = columns.Text()


@pytest.fixture(scope="module", autouse=True)
def tables():
    os.environ["CQLENG_ALLOW_SCHEMA_MANAGEMENT"] = "1"
    cluster = make_cluster(row_factory=dict_factory)
    session = cluster.connect()
    connection.register_connection("mapper", session=session, default=True)
    management.create_keyspace_network_topology(KEYSPACE, {"datacenter1": 1})
    management.sync_type(KEYSPACE, Address)
    for model in (Book, Loan, Reads, Grown):
        management.sync_table(model)
    yield
    management.drop_keyspace(KEYSPACE)
    connection.unregister_connection("mapper")
    cluster.shutdown()


def test_models_make_tables_and_find_nothing_to_change():
    for model in (Book, Loan, Reads, Grown):
        management.sync_table(model)
    meta = connection.get_cluster().metadata.keyspaces[KEYSPACE]
    assert set(meta.tables) == {"book", "loan", "reads", "reads_of_days"}
    loan = meta.tables["loan"]
    assert loan.columns["at"].is_reversed and loan.columns["name"].is_static
    assert loan.options["comment"] == "what readers have"
    assert loan.options["gc_grace_seconds"] == 3600
    assert meta.user_types["address"].field_names == ["street", "number", "floors"]
    management.sync_table(GrownLater)
    assert "more" in connection.get_cluster().metadata.keyspaces[KEYSPACE].tables["reads_of_days"].columns


def test_objects_with_collections_and_user_types_come_back():
    made = Book.create(
        isbn="1", title="Foundations", authors={"Ada", "Bea"}, chapters=["one", "two"], prices={"EUR": "12.25"},
        location=Address(street="Long Lane", number=7, floors=[1, 2]), published="2020-02-29",
    )
    found = Book.get(isbn="1")
    assert found == made and found.location.floors == [1, 2]
    assert str(found.prices["EUR"]) == "12.25" and found.pages == 0
    found.chapters.append("three")
    found.authors.discard("Ada")
    found.prices["USD"] = 14
    found.location = Address(street="Short Lane")
    found.save()
    again = Book.get(isbn="1")
    assert again.chapters == ["one", "two", "three"] and again.authors == {"Bea"}
    assert set(again.prices) == {"EUR", "USD"} and again.location.number is None
    again.pages = None
    again.save()
    assert Book.get(isbn="1").pages is None
    again.delete()
    with pytest.raises(DoesNotExist):
        Book.get(isbn="1")
    with pytest.raises(ValidationError):
        Book.create(isbn="2")


def test_collections_are_changed_by_updates():
    Book.create(isbn="3", title="t", authors={"a"}, chapters=["m"], prices={"EUR": 1})
    of = Book.objects(isbn="3")
    of.update(authors__add={"b"}, chapters__append=["z"], prices__update={"USD": 2})
    of.update(authors__remove={"a"}, chapters__prepend=["a"], prices__remove={"EUR"})
    found = Book.get(isbn="3")
    assert (found.authors, found.chapters, set(found.prices)) == ({"b"}, ["a", "m", "z"], {"USD"})


def test_conditional_writes_say_what_was_there():
    Book.if_not_exists().create(isbn="4", title="first")
    with pytest.raises(LWTException) as refused:
        Book.if_not_exists().create(isbn="4", title="second")
    assert refused.value.existing["title"] == "first"
    Book.objects(isbn="4").iff(title="first").update(title="changed")
    with pytest.raises(LWTException) as refused:
        Book.objects(isbn="4").iff(title="first").update(title="lost")
    assert refused.value.existing["title"] == "changed"
    with pytest.raises(LWTException):
        Book.objects(isbn="none").if_exists().update(title="x")
    Book.objects(isbn="4").if_exists().delete()
    assert Book.objects(isbn="4").count() == 0


def test_counters_go_up_and_down():
    reads = Reads.create(isbn="5")
    reads.count += 5
    reads.save()
    reads.count -= 2
    reads.other += 1
    reads.save()
    found = Reads.get(isbn="5")
    assert (found.count, found.other) == (3, 1)
    with BatchQuery(batch_type="COUNTER") as batch:
        Reads.objects(isbn="5").batch(batch).update(count=10)
    assert Reads.get(isbn="5").count == 13


def test_rows_of_a_partition_are_ordered_cut_and_paged():
    ids = [uuid.uuid1() for _ in range(30)]
    for at in ids:
        Loan.create(reader=1, at=at, isbn=str(at.time), name="Eve")
    newest = Loan.objects(reader=1)
    assert [loan.at for loan in newest.limit(3)] == ids[::-1][:3]
    assert [loan.at for loan in newest.order_by("at").limit(2)] == ids[:2]
    assert newest.filter(at__gt=ids[10], at__lte=ids[20]).count() == 10
    assert newest.filter(at__in=ids[:4]).count() == 4
    assert [loan.at for loan in newest.fetch_size(7).limit(None)] == ids[::-1]
    assert newest.first().name == "Eve"
    assert list(Loan.objects(reader=1).distinct(["reader", "name"]).values_list("reader", "name")) == [[1, "Eve"]]
    assert [isbn for isbn in newest.limit(2).values_list("isbn", flat=True)] == [str(at.time) for at in ids[::-1][:2]]
    long_ago, to_come = datetime(2000, 1, 1), datetime(2100, 1, 1)
    assert newest.filter(at__gt=MinTimeUUID(long_ago), at__lt=MaxTimeUUID(to_come)).count() == 30
    Loan.objects(reader=1, at__gte=ids[25]).delete()
    assert Loan.objects(reader=1).count() == 25


def test_batches_tokens_filters_and_times_to_live():
    now = datetime.now()
    with BatchQuery(timestamp=now) as batch:
        for reader in range(10, 20):
            Loan.batch(batch).create(reader=reader, isbn="7", returned=reader % 2 == 0)
    late = Loan.objects(returned=True, isbn="7").allow_filtering()
    assert sorted(loan.reader for loan in late) == [10, 12, 14, 16, 18]
    seen, last = [], None
    while True:
        query = Loan.objects.limit(3) if last is None else Loan.objects(pk__token__gt=Token(last)).limit(3)
        page = list(query.distinct(["reader"]))
        if not page:
            break
        seen += [loan.reader for loan in page]
        last = page[-1].pk
    assert set(range(10, 20)) <= set(seen) and len(seen) == len(set(seen))
    Grown.ttl(1000).create(day=1, note="soon gone")
    rows = connection.execute(f"SELECT ttl(note) AS left FROM {KEYSPACE}.reads_of_days WHERE day = 1")
    assert 900 < rows.one()["left"] <= 1000
    with ContextQuery(Grown, keyspace=KEYSPACE) as model:
        assert model.objects(day=1).get().note == "soon gone"
