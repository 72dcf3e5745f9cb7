-- Tables without indexes: a query looks through all of one, which takes as long as there are rows.
-- psql -v rows=150000: that many customers, as many orders, twice as many items.
set client_min_messages = warning;
create table customers (id int not null, email text not null, name text not null, city text not null);
create table orders (id int generated always as identity (start 1), customer_id int not null, placed timestamptz not null, total numeric(10, 2) not null);
create table items (order_id int not null, product text not null, quantity int not null, price numeric(10, 2) not null);
insert into customers
    select g, 'customer' || g || '@example.com', 'Customer ' || g, (array['Rome', 'Oslo', 'Lima', 'Pune'])[1 + g % 4]
    from generate_series(1, :rows) g;
insert into orders (customer_id, placed, total)
    select 1 + (g * 7919::bigint) % (:rows / 3), timestamptz '2024-01-01 00:00:00Z' + g * interval '1 minute', 10 + g % 500 + 0.50
    from generate_series(1, :rows) g;
insert into items
    select 1 + g % :rows, 'product ' || g % 1000, 1 + g % 5, 1 + g % 100 + 0.99
    from generate_series(1, :rows * 2) g;
-- One core a query, or the database's capacity would depend on what else it does.
alter database postgres set max_parallel_workers_per_gather = 0;
alter database postgres set jit = off;
vacuum analyze;
